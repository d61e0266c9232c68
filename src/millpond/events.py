"""What the worker's rooms announce: facts, each a frozen class, to whoever observes.

Most are about batches. Those about single jobs are made only when somebody asked for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from millpond.job import Job


@dataclass(frozen=True, slots=True)
class WorkerRegistered:
    """The worker has its row, and beats."""

    worker_id: UUID
    name: str


@dataclass(frozen=True, slots=True)
class JobsClaimed:
    """A claim brought jobs."""

    queue: str
    jobs: int
    seconds: float


@dataclass(frozen=True, slots=True)
class JobsSettled:
    """A batch of outcomes was written: how many by new state, and how many were stale (their claim was lost)."""

    states: Mapping[str, int]
    stale: int
    seconds: float


@dataclass(frozen=True, slots=True)
class JobsPromoted:
    """Due jobs became available."""

    jobs: int


@dataclass(frozen=True, slots=True)
class JobsReaped:
    """Jobs were taken back from workers that are no more."""

    available: int
    discarded: int


@dataclass(frozen=True, slots=True)
class JobsUnclaimable:
    """Jobs wait whose executor key this worker does not have: jobs seen at the head of the lines, by key.

    An empty mapping says that those seen before are gone.
    """

    queue: str
    seen: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """The worker could not say in time that it lives, or was taken for dead: it dropped what it held."""

    worker_id: UUID
    reason: str


@dataclass(frozen=True, slots=True)
class DatabaseLost:
    """A loop of the worker got no answer from the database; it tries again after `delay` seconds."""

    loop: str
    reason: str
    delay: float


Event: TypeAlias = (
    WorkerRegistered
    | JobsClaimed
    | JobsSettled
    | JobsPromoted
    | JobsReaped
    | JobsUnclaimable
    | LeaseLost
    | DatabaseLost
)

Observe: TypeAlias = Callable[[Event], None]
"""Called in a thread of its own, one event at a time. What it raises is logged; however slow it is, nothing waits."""


@dataclass(frozen=True, slots=True)
class JobCompleted:
    """The database says that the job is completed."""

    job: Job
    seconds: float
    """How long the attempt ran."""


@dataclass(frozen=True, slots=True)
class JobFailed:
    """The database says that the job is discarded: its last attempt has failed."""

    job: Job
    error: BaseException


@dataclass(frozen=True, slots=True)
class JobHeartbeat:
    """An attempt is still running; told every beat_interval."""

    job: Job
    seconds: float
    """How long it has run."""


JobEvent: TypeAlias = JobCompleted | JobFailed | JobHeartbeat

ObserveJobs: TypeAlias = Callable[[JobEvent], None]
"""Called as Observe is."""
