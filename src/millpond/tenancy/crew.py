"""Has attempts run where they belong: on the loop, in a thread, or in a child process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from millpond.clock import monotonic
from millpond.executors.mailbox import Mailbox
from millpond.executors.processes import Processes, Work, see_off
from millpond.executors.threads import Threads, in_thread
from millpond.outcome import Completed
from millpond.settings import PoolSettings
from millpond.tenancy.attempt import Attempt, verdict
from millpond.tenancy.instrument import Lens
from millpond.tenancy.runners import Ended, Runners
from millpond.tenancy.task import TaskContext


class Crew:
    """Takes what may run now, and says how it ended. Lives on one event loop."""

    def __init__(
        self,
        settings: PoolSettings,
        *,
        take: Callable[[], Attempt | None],
        ready: Callable[[], bool],
        waits: Callable[[Attempt], None],
        ended: Ended,
        lens: Lens | None,
    ) -> None:
        """`take` gives the next attempt that may run, `ready` says whether there is one.

        `waits` is told of each attempt that does not end at once, `ended` of each that does, once for each one taken.
        """
        loop = asyncio.get_running_loop()
        self._task_timeout = settings.task_timeout
        self._ready = ready
        self._waits = waits
        self._ended = ended
        self._mailbox = Mailbox(loop)
        self._threads: Threads[Attempt] = Threads(settings.worker_count, self._mailbox, self._returned)
        self._processes = Processes(settings.process_count)
        self._in_thread = _run if lens is None else lens.in_thread(_run)
        self._in_process = self._employ if lens is None else lens.in_thread(self._employ)
        self._runners = Runners(
            loop,
            settings.worker_count,
            take=take,
            ready=ready,
            elsewhere=self._send,
            waits=waits,
            ended=ended,
            run_of=None if lens is None else lens.on_loop,
        )
        self.wake: Final = self._runners.wake
        """Something may run."""

    def interrupt(self, attempt: Attempt) -> bool:
        """Ask a running attempt to end; whether it can be trusted to say so itself. A thread cannot."""
        if attempt.runner is not None:
            attempt.runner.cancel()
            return True
        self._processes.interrupt(attempt)
        return False

    async def close(self) -> None:
        """End everything but threads that still run something. Every attempt must be over."""
        self._threads.close()
        await self._runners.close()
        if children := self._processes.close():
            await in_thread(lambda: see_off(children))

    def forget(self) -> None:
        """In a forked child: run nothing more."""
        self._mailbox.forget()
        self._threads.forget()

    def _send(self, attempt: Attempt) -> None:
        if attempt.task.isolation == "process":
            attempt.started, attempt.deadline = 0.0, None  # it begins when there is a child for it
            self._threads.submit(self._in_process, attempt)
        else:
            self._waits(attempt)
            self._threads.submit(self._in_thread, attempt)

    def _returned(self, attempt: Attempt, value: object, error: BaseException | None) -> None:
        """A thread has done with an attempt."""
        self._ended(attempt, Completed(value) if error is None else verdict(attempt, error))
        if self._ready():
            self._runners.wake()

    def _employ(self, attempt: Attempt) -> object:
        """In a thread: have a child run it."""
        return self._processes.call(attempt, lambda: self._begun(attempt))

    def _begun(self, attempt: Attempt) -> Work:
        attempt.begin(monotonic(), self._task_timeout)
        self._mailbox.post(self._waits, attempt)
        bare = msgspec.structs.replace(attempt.task, run=_not_here, complete=_not_here)
        return attempt.task.run, TaskContext(bare, attempt=attempt.attempt, deadline=attempt.deadline)


def _run(attempt: Attempt) -> object:
    return attempt.task.run(attempt)


def _not_here(*_: object) -> None:
    """Stands for the task's callables in a child process, where they are of no use."""
