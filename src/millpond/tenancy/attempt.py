"""One attempt at a task, as the pool keeps it, and what is said of one that raised."""

from __future__ import annotations

from asyncio import CancelledError
from enum import Enum
from types import TracebackType

from millpond.errors import TaskTimeout
from millpond.outcome import Cancelled, Failed, Outcome, Released
from millpond.tenancy.task import Cause, TaskContext
from millpond.tenancy.turns import Lane


class Stage(Enum):
    """Where an attempt is, until it is over."""

    QUEUED = "queued"
    RUNNING = "running"
    RESTING = "resting"
    """Waits for its moment to be queued: the attempt before it failed."""


class Attempt(TaskContext):
    """What the pool knows of an attempt beside what the running code is shown."""

    lane: Lane[Attempt] | None = None
    name: object = None
    """What `cancel` finds it by."""
    stage: Stage = Stage.QUEUED
    over: bool = False
    """Whether its outcome is told, or it makes way for the next attempt. It may run on: a thread cannot be stopped."""
    started: float = 0.0
    """On the monotonic clock."""
    reason: str = ""
    """In words, beside `cause`."""
    before: Failed | None = None
    """How the attempt before this one ended."""
    captured: object = None
    """What the instrument took from the caller's context."""
    hand: object = None
    """The runner or child process that runs it."""


def verdict(attempt: Attempt, error: BaseException) -> Outcome:
    """What an attempt that raised has come to. An attempt that was asked to end, ends for that reason."""
    error.__traceback__ = _users_part(error.__traceback__)
    match attempt.cause:
        case None:
            return Failed(error)
        case Cause.TIMEOUT:
            timeout = TaskTimeout((attempt.deadline or 0.0) - attempt.started)
            timeout.__cause__ = None if isinstance(error, CancelledError) else error
            return Failed(timeout)
        case Cause.CANCEL:
            return Cancelled(attempt.reason)
        case Cause.STOP:
            return Released(attempt.reason, started=True)


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from where the user's code begins: ours says nothing, and holds on to the frames of a runner."""
    while trace is not None and trace.tb_next is not None and _is_ours(trace):
        trace = trace.tb_next
    return trace


def _is_ours(trace: TracebackType) -> bool:
    module = trace.tb_frame.f_globals.get("__name__", "")
    return isinstance(module, str) and module.startswith(("millpond.tenancy.", "millpond.executors."))
