"""One attempt at a job: its args decoded, its executor called with a context. What it raises is the pool's to catch.

This room knows no database: what completes a job in the user's own transaction is handed in as a plain callable.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeAlias, overload

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


class _Commits(Protocol):
    """A synchronous connection: psycopg's, Django's, SQLAlchemy's Connection, Session or scoped_session."""

    def commit(self) -> None: ...


class _CommitsLater(Protocol):
    """An asynchronous connection: psycopg's, SQLAlchemy's AsyncConnection, AsyncSession or async_scoped_session."""

    def commit(self) -> Coroutine[Any, Any, None]: ...


class _Fetches(Protocol):
    """asyncpg's Connection, of its own or from a pool: it has no commit."""

    def is_closed(self) -> bool: ...
    def fetch(self, query: str, /, *args: object) -> Coroutine[Any, Any, list[Any]]: ...


AwaitedConnection: TypeAlias = _CommitsLater | _Fetches
"""What type checkers tell an asynchronous connection by: the classes themselves are not known here."""


class CompleteIn(Protocol):
    """Completes a job through a connection, in whatever transaction is open there."""

    def __call__(self, conn: Any, job: Job) -> Any: ...


class Work(Protocol):
    """What a context belongs to."""

    job: Job
    complete_in: CompleteIn
    completed_in_place: bool


class JobContext:
    """What an executor learns about its job, and what it may ask for."""

    __slots__ = ("_signals", "_work")

    def __init__(self, work: Work, signals: Signals) -> None:
        self._work = work
        self._signals = signals

    @property
    def job(self) -> Job:
        """The job as it was claimed."""
        return self._work.job

    @property
    def tenant(self) -> str:
        """Whom the job is for."""
        return self._work.job.tenant

    @property
    def attempt(self) -> int:
        """1 for the first attempt."""
        return self._work.job.attempt

    @property
    def metadata(self) -> dict[str, str]:
        """What was stored beside the args at enqueue."""
        stored = self._work.job.metadata
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

    @overload
    def complete_in(self, conn: _Commits) -> None: ...
    @overload
    def complete_in(self, conn: AwaitedConnection) -> Coroutine[Any, Any, None]: ...
    def complete_in(self, conn: Any) -> Coroutine[Any, Any, None] | None:
        """Complete the job in the transaction that is open on `conn`: its effects and its completion commit together.

        `conn` is any connection the clients take. On a synchronous one this returns when done; on an asynchronous one
        it must be awaited. What the executor does afterwards does not change the outcome, once committed. Raises
        ClaimLost when the row is no longer this attempt's: let it pass, so that the transaction rolls back.
        """
        done = self._work.complete_in(conn, self._work.job)
        if inspect.isawaitable(done):
            return self._noted(done)
        self._work.completed_in_place = True
        return None

    async def _noted(self, done: Awaitable[None]) -> None:
        await done
        self._work.completed_in_place = True


class Execution:
    """One attempt at a job, as work for the pool: called with the pool's signals, it gives what its executor gives."""

    __slots__ = ("complete_in", "completed_in_place", "executor", "job", "started_at")

    def __init__(self, job: Job, executor: Executor, complete_in: CompleteIn) -> None:
        self.job = job
        self.executor = executor
        self.complete_in = complete_in
        self.completed_in_place = False
        """Whether the executor wrote the completion itself; then it is no surprise that settling finds it done. A
        completion that found the claim lost is none: settling is to count it."""
        self.started_at: float | None = None
        """On the monotonic clock; None while it has not started."""

    def __call__(self, signals: Signals) -> object:
        self.started_at = monotonic()
        return self.executor.call(JobContext(self, signals), self.executor.decode(self.job.args))

    def __reduce__(self) -> tuple[object, ...]:
        """On its way to a child process: what may not travel is done before, and what nobody reads there stays."""
        self.started_at = monotonic()
        args = self.executor.decode(self.job.args)
        return _InChild, (self.job, self.executor.call, args, self.complete_in)


class _InChild:
    """An execution in a child process. What the executor returns stays there; only how it ended comes back."""

    def __init__(self, job: Job, call: Callable[[Any, Any], object], args: object, complete_in: CompleteIn) -> None:
        self.job = job
        self.complete_in = complete_in
        self.completed_in_place = False
        self._call = call
        self._args = args

    def __call__(self, signals: Signals) -> CompletedInPlace | None:
        self._call(JobContext(self, signals), self._args)
        return CompletedInPlace() if self.completed_in_place else None


class CompletedInPlace:
    """What a child process returns when its executor wrote the completion itself."""
