"""What a worker has done, and how it is."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

from millpond.job import JobState
from millpond.tenancy.health import Health


@dataclass(slots=True)
class Tally:
    """What a worker has done since it began, over all its registrations. Counted as outcomes are written."""

    settled: Counter[str] = field(default_factory=Counter)
    """Outcomes by the state they led to."""
    stale: int = 0
    """Outcomes that came too late: their claim was lost, and they changed nothing."""
    cut_short: int = 0
    """Running jobs that a stop had to cancel, or leave behind, when the grace was over."""
    unwritten: int = 0
    """Outcomes that could not be written before the end; their jobs run again."""

    @property
    def discarded(self) -> int:
        """Jobs that failed for good."""
        return self.settled[JobState.DISCARDED.value]

    @property
    def clean(self) -> bool:
        """Whether everything that ran, ended by itself, and is written."""
        return not self.cut_short and not self.unwritten


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """A worker at one moment."""

    worker_id: UUID | None
    """Of this registration; None while there is none."""
    healthy: bool
    """Whether it is registered, beats in time, and its pool takes jobs."""
    stopping: bool
    """Whether it was told to stop."""
    lease: float
    """Seconds of silence after which its jobs are taken back (`stale_timeout`)."""
    beat_age: float | None
    """Seconds since the database last acknowledged a beat."""
    unwritten: int
    """Outcomes that wait to be written."""
    pool: Health | None
    """The pool's own; None while not registered."""
