"""One attempt at a job: its args decoded, its executor called with a context. What it raises is the pool's to catch.

This room knows no database: what completes a job in the user's own transaction is handed in as a plain callable.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from millpond.clock import monotonic
from millpond.job import Job
from millpond.registry import Executor


class Signals(Protocol):
    """What the pool tells a running attempt."""

    @property
    def cancelled(self) -> bool: ...

    @property
    def deadline(self) -> float | None: ...


class CompleteIn(Protocol):
    """Completes a job through a connection, in whatever transaction is open there."""

    def __call__(self, conn: Any, job: Job) -> Any: ...


class JobContext:
    """What an executor learns about its job, and what it may ask for."""

    __slots__ = ("_attempt", "_signals")

    def __init__(self, attempt: Attempt, signals: Signals) -> None:
        self._attempt = attempt
        self._signals = signals

    @property
    def job(self) -> Job:
        """The job as it was claimed."""
        return self._attempt.job

    @property
    def tenant(self) -> str:
        """Whom the job is for."""
        return self._attempt.job.tenant

    @property
    def attempt(self) -> int:
        """1 for the first attempt."""
        return self._attempt.job.attempt

    @property
    def metadata(self) -> dict[str, str]:
        """What was stored beside the args at enqueue."""
        stored = self._attempt.job.metadata
        return {} if stored is None else msgspec.json.decode(stored, type=dict[str, str])

    @property
    def cancelled(self) -> bool:
        """True once this attempt should end: its time is up, somebody cancelled the job, or the worker stops.

        Async executors are cancelled besides; a plain function has to look, since threads cannot be stopped.
        """
        return self._signals.cancelled

    @property
    def deadline(self) -> float | None:
        """When the attempt's time is up, on the monotonic clock (`time.monotonic()`); None: never."""
        return self._signals.deadline

    def complete_in(self, conn: Any) -> Any:
        """Complete the job in the transaction that is open on `conn`: its effects and its completion commit together.

        `conn` is any connection the clients take. On a synchronous one this returns when done; on an asynchronous one
        it must be awaited. What the executor does afterwards does not change the outcome, once committed. Raises
        ClaimLost when the row is no longer this attempt's: let it pass, so that the transaction rolls back.
        """
        self._attempt.completed_in_place = True
        return self._attempt.complete_in(conn, self._attempt.job)


class Attempt:
    """One attempt at a job, as work for the pool: called with the pool's signals, it gives what its executor gives."""

    __slots__ = ("complete_in", "completed_in_place", "executor", "job", "started_at")

    def __init__(self, job: Job, executor: Executor, complete_in: CompleteIn) -> None:
        self.job = job
        self.executor = executor
        self.complete_in = complete_in
        self.completed_in_place = False
        """Whether the executor wrote the completion itself; then it is no surprise that settling finds it done."""
        self.started_at: float | None = None
        """On the monotonic clock; None while it has not started."""

    def __call__(self, signals: Signals) -> object:
        self.started_at = monotonic()
        return self.executor.call(JobContext(self, signals), self.executor.decode(self.job.args))
