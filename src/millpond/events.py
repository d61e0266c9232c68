"""What the worker's rooms announce: facts, each a frozen class, to whoever observes. Batches, never single jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID


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
"""Called on the worker's loop; must not block. What it raises is logged, and changes nothing."""


def ignore(event: Event) -> None:
    """The observer of a worker that has none."""
