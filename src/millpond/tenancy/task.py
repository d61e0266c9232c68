"""A task: what the pool runs, for whom, and whom it tells. And what the running code is given."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum

import msgspec

from millpond.executors import Isolation, isolation_of
from millpond.outcome import Outcome


class Cause(Enum):
    """Why an attempt was asked to end before its time."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"
    STOP = "stop"


class Task(msgspec.Struct, eq=False, kw_only=True):
    """Work for a tenant. The pool calls `complete` exactly once for each task it accepted, on the loop's thread."""

    tenant: str
    run: Callable[[TaskContext], Awaitable[object] | object]
    complete: Callable[[Task, Outcome], None]
    """Must not block. What it raises is logged and changes nothing."""
    isolation: Isolation | None = None
    """None: "loop" for an async function, "thread" for any other; looked up once, here. For a process, `run` and what
    it returns must be picklable, and the program must begin under an `if __name__ == "__main__":`."""
    timeout: float | None = None
    """Seconds that one attempt may take; None: the pool's task_timeout."""
    key: str = ""
    """The executor key, or another label of few values: for logs and telemetry."""
    id: object = None
    """Hashable; names the task for `cancel` and in logs. None: the task names itself."""

    def __post_init__(self) -> None:
        if self.isolation is None:
            self.isolation = isolation_of(self.run)


class TaskContext(msgspec.Struct, eq=False):
    """What `run` receives: one attempt, seen from inside."""

    task: Task
    attempt: int = 1
    """1 for the first attempt; counts the pool's own attempts only."""
    cause: Cause | None = None
    """Why this attempt was asked to end; None while it was not."""
    deadline: float | None = None
    """On the monotonic clock, in seconds; None: it may take for ever."""

    @property
    def cancelled(self) -> bool:
        """Whether this attempt was asked to end: by a timeout, a cancel or a stop. Threads may read it at any time."""
        return self.cause is not None
