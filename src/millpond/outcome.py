"""What became of one attempt: a value. Running code returns one of these; another room writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias, assert_never

import msgspec

from millpond.failure import described, storable
from millpond.job import Job, JobState


class Completed(msgspec.Struct, frozen=True):
    """The executor returned."""

    result: object = None


class Failed(msgspec.Struct, frozen=True):
    """The executor raised, or its attempt took too long (then `error` is a TaskTimeout)."""

    error: BaseException


class Cancelled(msgspec.Struct, frozen=True):
    """Somebody asked for this one job not to run (any more)."""

    reason: str


class Released(msgspec.Struct, frozen=True):
    """Handed back by a stopping pool: it never started, or was interrupted. The attempt does not count."""

    reason: str
    started: bool = False


Outcome: TypeAlias = Completed | Failed | Cancelled | Released


class Settlement(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an outcome makes of the row: one record of the settle statement. Field names are its columns."""

    id: int
    claim_token: int
    state: str
    delay: float | None = None
    """Seconds from the database's now until the next attempt; None: the moment stays as it is."""
    refund: int = 0
    """Attempts given back: 1 when this one does not count."""
    error: dict[str, object] | None = None
    """The entry for the row's error history; the database adds the time."""


def settlement(job: Job, outcome: Outcome, *, backoff: Callable[[int], float], worker: str) -> Settlement:
    """Decide what becomes of the row. `backoff` gives the seconds to wait after so many attempts."""
    match outcome:
        case Completed():
            return Settlement(job.id, job.claim_token, JobState.COMPLETED.value)
        case Released():
            return Settlement(job.id, job.claim_token, JobState.AVAILABLE.value, refund=1)
        case Cancelled(reason):
            entry = {"attempt": job.attempt, "worker": worker, "type": "Cancelled", "message": storable(reason)}
            return Settlement(job.id, job.claim_token, JobState.CANCELLED.value, error=entry)
        case Failed(error):
            entry = {"attempt": job.attempt, "worker": worker, **described(error)}
            if job.attempt >= job.max_attempts:
                return Settlement(job.id, job.claim_token, JobState.DISCARDED.value, error=entry)
            delay = backoff(job.attempt)
            return Settlement(job.id, job.claim_token, JobState.RETRYABLE.value, delay=delay, error=entry)
        case _:
            assert_never(outcome)
