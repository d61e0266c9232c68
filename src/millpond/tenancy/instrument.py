"""What telemetry may see of the pool, and the promise that it changes nothing."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol, TypeAlias, cast

from millpond.outcome import Completed, Failed, Outcome
from millpond.tenancy.attempt import Attempt
from millpond.tenancy.logs import logger_of
from millpond.tenancy.task import Task, TaskContext

logger = logger_of(__name__)

Status: TypeAlias = Literal["success", "failed", "cancelled"]
"""What one attempt has come to; one that was handed back counts as cancelled."""


class Instrument(Protocol):
    """Looks on. What its methods raise is logged, and changes nothing."""

    def submitted(self, task: Task) -> object | None:
        """Called by `submit`, in the caller's context: what it returns is given to each attempt."""

    def attempt(self, task: Task, context: TaskContext, captured: object | None) -> AbstractContextManager[object]:
        """Entered and left around one attempt, in its own contextvars.Context, and in its thread when it has one."""

    def finished(self, task: Task, status: Status, seconds: float) -> None:
        """Called on the loop's thread for each attempt that had started, with how long it took."""

    def lagged(self, seconds: float) -> None:
        """Called on the loop's thread about twice a second: how long the event loop took to come round."""


class Lens:
    """An instrument that cannot do harm."""

    def __init__(self, instrument: Instrument) -> None:
        self._instrument = instrument

    def submitted(self, task: Task) -> object | None:
        try:
            return self._instrument.submitted(task)
        except Exception:
            logger.exception("The instrument failed when a task was submitted; nothing else changes.")
            return None

    def finished(self, attempt: Attempt, outcome: Outcome, seconds: float) -> None:
        try:
            self._instrument.finished(attempt.task, status_of(outcome), seconds)
        except Exception:
            logger.exception("The instrument failed when an attempt was finished; nothing else changes.")

    def lagged(self, seconds: float) -> None:
        try:
            self._instrument.lagged(seconds)
        except Exception:
            logger.exception("The instrument failed on the loop's lag; nothing else changes.")

    def on_loop(self, attempt: Attempt) -> Callable[[TaskContext], object]:
        """The task's `run`, looked upon while it is awaited."""

        async def observed(context: TaskContext) -> object:
            with _Harmless(self._instrument, attempt):
                made = attempt.task.run(context)
                return await cast(Awaitable[object], made) if inspect.isawaitable(made) else made

        return observed

    def in_thread(self, run: Callable[[Attempt], object]) -> Callable[[Attempt], object]:
        """Such a call, looked upon."""

        def observed(attempt: Attempt) -> object:
            with _Harmless(self._instrument, attempt):
                return run(attempt)

        return observed


def status_of(outcome: Outcome) -> Status:
    """In the words of telemetry."""
    if isinstance(outcome, Completed):
        return "success"
    return "failed" if isinstance(outcome, Failed) else "cancelled"


class _Harmless:
    """The instrument's context manager for one attempt: it may neither fail the attempt, nor swallow what it raises."""

    def __init__(self, instrument: Instrument, attempt: Attempt) -> None:
        self._instrument = instrument
        self._attempt = attempt
        self._within: AbstractContextManager[object] | None = None

    def __enter__(self) -> None:
        attempt = self._attempt
        try:
            within = self._instrument.attempt(attempt.task, attempt, attempt.captured)
            within.__enter__()
            self._within = within
        except Exception:
            logger.exception("The instrument failed at the start of an attempt; nothing else changes.")

    def __exit__(self, *raised: Any) -> None:
        if self._within is not None:
            try:
                self._within.__exit__(*raised)
            except Exception as error:
                if error is not raised[1]:
                    logger.exception("The instrument failed at the end of an attempt; nothing else changes.")
