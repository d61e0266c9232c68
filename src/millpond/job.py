"""A job as it is asked for, a job as it was claimed, its states and their legal moves."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NewType

import msgspec

JobId = NewType("JobId", int)
"""`jobs.id`: a bigint, unique within its schema. No order of ids is promised across transactions."""

ClaimToken = NewType("ClaimToken", int)
"""What a claim stamps on its rows; never used again. High half: the worker's number; low half: its count of claims."""

MAX_NAME: Final = 255
"""Longest tenant id, queue name and executor key, in characters."""

DEFAULT_QUEUE: Final = "default"
DEFAULT_PRIORITY: Final = 100
DEFAULT_MAX_ATTEMPTS: Final = 25
"""As in River; with the default backoff the last attempt is about 14 hours after the first."""


class JobState(StrEnum):
    """Where a job is in its life; named as in River. Stored as text with a CHECK."""

    AVAILABLE = "available"
    """May be claimed now. Enqueue, promotion, hand-back and the reaper put jobs here."""
    SCHEDULED = "scheduled"
    """Waits for its scheduled_at; upkeep promotes it."""
    RETRYABLE = "retryable"
    """Failed, and waits for its next attempt; upkeep promotes it."""
    RUNNING = "running"
    """Claimed: a worker holds it under a claim token. Only the claim moves jobs here."""
    COMPLETED = "completed"
    """Final: the executor returned."""
    CANCELLED = "cancelled"
    """Final: somebody asked for it not to run (any more)."""
    DISCARDED = "discarded"
    """Final: failed on its last attempt, or its worker died on it. The error history is kept."""

    @property
    def final(self) -> bool:
        """Whether the job will never move again by itself (⇔ `finalized_at` is set)."""
        return self in _FINAL


_FINAL: Final = frozenset({JobState.COMPLETED, JobState.CANCELLED, JobState.DISCARDED})

MOVES: Final[Mapping[JobState, frozenset[JobState]]] = {
    JobState.SCHEDULED: frozenset({JobState.AVAILABLE, JobState.CANCELLED}),
    JobState.RETRYABLE: frozenset({JobState.AVAILABLE, JobState.CANCELLED}),
    JobState.AVAILABLE: frozenset({JobState.RUNNING, JobState.CANCELLED}),
    JobState.RUNNING: frozenset(
        {
            JobState.COMPLETED,
            JobState.RETRYABLE,
            JobState.SCHEDULED,
            JobState.AVAILABLE,
            JobState.CANCELLED,
            JobState.DISCARDED,
        }
    ),
    JobState.COMPLETED: frozenset(),
    JobState.CANCELLED: frozenset(),
    JobState.DISCARDED: frozenset(),
}
"""Every legal move. A snooze leads from running to scheduled, a hand-back from running to available."""


class NewJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as asked for, checked and encoded: one row of the insert statement's parameter.

    The field names are the statement's record columns.
    """

    executor: str
    args: msgspec.Raw
    tenant_id: str
    queue: str = DEFAULT_QUEUE
    priority: int = DEFAULT_PRIORITY
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    scheduled_at: datetime | None = None
    """A moment (aware), or None for "now" by the database's clock."""
    delay: float | None = None
    """Seconds after the database's now; instead of scheduled_at."""
    timeout: float | None = None
    """Seconds that one attempt may take; None: the executor's, else the worker's."""
    metadata: dict[str, str] = {}


class Job(msgspec.Struct, frozen=True):
    """A claimed job: what the claim statement returns, in its order of columns."""

    id: JobId
    tenant: str
    executor: str
    args: str
    """The stored JSON, as text: decoded only when its executor wants it."""
    attempt: int
    """1 for the first attempt: claims that may have run user code, this one included."""
    max_attempts: int
    priority: int
    scheduled_epoch: float
    """When it was to run: seconds since 1970. A number, since no session setting can make it unreadable."""
    timeout: float | None
    metadata: str | None
    """The stored JSON, as text; None when empty."""
    queue: str
    claim_token: ClaimToken

    @property
    def scheduled_at(self) -> datetime:
        """When it was to run; aware, in UTC."""
        return datetime.fromtimestamp(self.scheduled_epoch, UTC)
