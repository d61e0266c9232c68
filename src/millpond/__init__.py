"""A Postgres job store with a tenant-isolated worker pool.

This is the door. Beside it, four rooms are for users, and what they have without an underscore stays:
`millpond.events` (what observers are told), `millpond.telemetry` (OpenTelemetry), `millpond.alembic` (for an
application's own environment), `millpond.testing` (for its tests). Everything else may change.
"""

from millpond.client import AsyncClient, Client
from millpond.errors import (
    AnswerLost,
    ArgsTooLarge,
    ClaimLost,
    DatabaseUnreachable,
    DatabaseUnsuitable,
    DuplicateExecutor,
    ForkedPool,
    InvalidArgs,
    InvalidExecutor,
    InvalidJob,
    MillpondError,
    PoolQueueFull,
    PoolStopping,
    ProcessDied,
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
from millpond.tenancy.blocking import BlockingTenantPool
from millpond.tenancy.health import Health, Room
from millpond.tenancy.pool import TenantPool
from millpond.tenancy.task import Task, TaskContext
from millpond.tenancy.tenants import Tenant, TenantProvider
from millpond.worker.tally import Tally, WorkerHealth
from millpond.worker.thread import WorkerThread
from millpond.worker.worker import Worker

__all__ = [
    "AnswerLost",
    "ArgsOptions",
    "ArgsTooLarge",
    "AsyncClient",
    "AsyncConnection",
    "Attempts",
    "BlockingTenantPool",
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
    "ForkedPool",
    "Health",
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
    "ProcessDied",
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
    "Tenant",
    "TenantPool",
    "TenantProvider",
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
