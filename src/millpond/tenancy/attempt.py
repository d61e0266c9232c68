"""One attempt at a task, as the pool keeps it, and what is said of one that raised."""

from __future__ import annotations

import asyncio
from enum import Enum
from types import TracebackType

from millpond.errors import TaskTimeout
from millpond.executors.processes import Child
from millpond.outcome import Cancelled, Failed, Outcome, Released
from millpond.tenancy.task import Cause, TaskContext
from millpond.tenancy.turns import Lane


class Stage(Enum):
    """Where an attempt is, until it is over."""

    QUEUED = "queued"
    RUNNING = "running"
    RESTING = "resting"
    """Waits for its moment to be queued: the attempt before it failed."""


class Attempt(TaskContext, kw_only=True):
    """What the pool knows of an attempt beside what the running code is shown."""

    lane: Lane[Attempt]
    name: object
    """What `cancel` finds it by."""
    stage: Stage = Stage.QUEUED
    over: bool = False
    """Whether its outcome is told, or left to the next attempt. It may still run: a thread cannot be stopped."""
    started: float = 0.0
    """When it began to run, on the monotonic clock; 0 before that."""
    reason: str = ""
    """In words, beside `cause`."""
    before: Failed | None = None
    """How the attempt before this one ended."""
    captured: object = None
    """What the instrument took from the caller's context."""
    runner: asyncio.Task[None] | None = None
    """What runs it, when that is on the loop."""
    child: Child | None = None
    """What runs it, when that is a process."""

    @property
    def has_started(self) -> bool:
        """Whether any of the user's code may have run."""
        return self.started > 0

    def begin(self, now: float, task_timeout: float | None) -> None:
        """It starts to run now. Its own timeout comes before the pool's."""
        self.started = now
        timeout = self.task.timeout
        if timeout is None:
            timeout = task_timeout
        if timeout is not None:
            self.deadline = now + timeout

    def __str__(self) -> str:
        task = self.task
        named = "" if task.id is None else f" {task.id!r}"
        return f"task{named} ({task.key or 'without a key'}) of tenant {task.tenant!r}"


def verdict(attempt: Attempt, error: BaseException) -> Outcome:
    """What an attempt that raised has come to. One that was asked to end, ends for that reason."""
    error.__traceback__ = _users_part(error.__traceback__)
    match attempt.cause:
        case None:
            return Failed(error)
        case Cause.TIMEOUT:
            timeout = TaskTimeout((attempt.deadline or 0.0) - attempt.started)
            timeout.__cause__ = None if isinstance(error, asyncio.CancelledError) else error
            return Failed(timeout)
        case Cause.CANCEL:
            return Cancelled(attempt.reason)
        case Cause.STOP:
            return Released(attempt.reason, started=attempt.has_started)


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from where the user's code begins: ours says nothing, and keeps the frames of a runner alive."""
    while trace is not None and trace.tb_next is not None and _is_ours(trace):
        trace = trace.tb_next
    return trace


def _is_ours(trace: TracebackType) -> bool:
    module = trace.tb_frame.f_globals.get("__name__")
    return isinstance(module, str) and module.startswith(("millpond.tenancy.", "millpond.executors."))
