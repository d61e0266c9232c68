"""A Postgres job store with a tenant-isolated worker pool. This is the only door: what is not here may change."""

from millpond.client import AsyncClient, Client
from millpond.errors import (
    ArgsTooLarge,
    ClaimLost,
    DatabaseUnreachable,
    DatabaseUnsuitable,
    DuplicateExecutor,
    InvalidArgs,
    InvalidExecutor,
    InvalidJob,
    MillpondError,
    PoolQueueFull,
    PoolStopping,
    RegistryError,
    SchemaMismatch,
    SettingsError,
    StoreError,
    SubmitError,
    TaskTimeout,
    TenantQueueFull,
    UnknownExecutor,
    UnknownTenant,
    UnsupportedConnection,
)
from millpond.execution import JobContext
from millpond.job import ClaimToken, Job, JobId, JobState, NewJob
from millpond.options import ArgsOptions, JobOptions, args
from millpond.outcome import Cancelled, Completed, Failed, Outcome, Released
from millpond.registry import ExecutorRegistry
from millpond.settings import Attempts, PoolSettings, RetryPolicy, WorkerSettings
from millpond.store.connections import AsyncConnection, SyncConnection
from millpond.tenancy.pool import Room, TenantPool
from millpond.tenancy.task import Task, TaskContext
from millpond.worker.tally import Tally, WorkerHealth
from millpond.worker.thread import WorkerThread
from millpond.worker.worker import Worker

__all__ = [
    "ArgsOptions",
    "ArgsTooLarge",
    "AsyncClient",
    "AsyncConnection",
    "Attempts",
    "Cancelled",
    "ClaimLost",
    "ClaimToken",
    "Client",
    "Completed",
    "DatabaseUnreachable",
    "DatabaseUnsuitable",
    "DuplicateExecutor",
    "ExecutorRegistry",
    "Failed",
    "InvalidArgs",
    "InvalidExecutor",
    "InvalidJob",
    "Job",
    "JobContext",
    "JobId",
    "JobOptions",
    "JobState",
    "MillpondError",
    "NewJob",
    "Outcome",
    "PoolQueueFull",
    "PoolSettings",
    "PoolStopping",
    "RegistryError",
    "Released",
    "RetryPolicy",
    "Room",
    "SchemaMismatch",
    "SettingsError",
    "StoreError",
    "SubmitError",
    "SyncConnection",
    "Tally",
    "Task",
    "TaskContext",
    "TaskTimeout",
    "TenantPool",
    "TenantQueueFull",
    "UnknownExecutor",
    "UnknownTenant",
    "UnsupportedConnection",
    "Worker",
    "WorkerHealth",
    "WorkerSettings",
    "WorkerThread",
    "args",
]
