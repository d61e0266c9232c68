"""Runs async tasks: a few asyncio tasks that stay, each running one attempt after another.

A task that never waits costs no asyncio task, no callback and no timer. One runner takes attempts in turn; only when an
attempt waits for something, the next runners are called to go on with the others. So there are about as many
runners as attempts that wait at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from inspect import isawaitable
from types import CoroutineType
from typing import Any, Final, TypeAlias, cast

from millpond.clock import monotonic
from millpond.executors.loop import stepped
from millpond.outcome import Completed, Outcome
from millpond.tenancy.attempt import Attempt, verdict
from millpond.tenancy.task import TaskContext

Ended: TypeAlias = Callable[[Attempt, Outcome], None]
"""Told that an attempt runs no more, and what it has come to."""

Run: TypeAlias = Callable[[TaskContext], object]

_BURST: Final = 0.001
"""Seconds for which attempts are run back to back before the event loop has its turn."""

_CALL: Final = 2
"""Runners called when an attempt waits: their number doubles each turn of the loop, as long as attempts wait."""


class Runner(asyncio.Task[None]):
    """An asyncio task that knows what it is running, and whether anybody ever cancelled it."""

    attempt: Attempt | None = None
    touched: bool = False
    """A cancellation may still be on its way when the attempt it was meant for has ended. So a runner that was
    cancelled, by the pool or by what it runs, runs nothing else after."""
    coming: bool = True
    waiter: asyncio.Future[None]

    def cancel(self, msg: Any | None = None) -> bool:
        self.touched = True
        return super().cancel(msg)


class Runners:
    """All runners of a pool. They take what may run now, run it or pass it on, and say how it ended."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        most: int,
        *,
        take: Callable[[], Attempt | None],
        ready: Callable[[], bool],
        elsewhere: Callable[[Attempt], None],
        waits: Callable[[Attempt], None],
        ended: Ended,
        run_of: Callable[[Attempt], Run] | None = None,
    ) -> None:
        """At most `most` runners, as many as may run at once.

        `take` gives the next attempt that may run, `ready` says whether there is one.

        `elsewhere` is given those that do not run on the loop. `waits` is told of each attempt that does not end at
        once. `run_of` gives what to call for an attempt, when that is not the task's own `run`.
        """
        self._loop = loop
        self._most = most
        self._take = take
        self._ready = ready
        self._elsewhere = elsewhere
        self._waits = waits
        self._ended = ended
        self._run_of = run_of
        self._runners: set[Runner] = set()
        self._parked: list[Runner] = []
        self._coming = 0
        self._until = 0.0
        self._closed = False

    def wake(self) -> None:
        """Something may run: somebody will come and take it, unless somebody comes already."""
        if not self._coming:
            self._call()

    async def close(self) -> None:
        """End every runner. What one still runs must be over: it is left where it stands."""
        self._closed = True
        runners = list(self._runners)
        for runner in runners:
            runner.cancel()
        if runners:
            await asyncio.wait(runners)

    def _call(self) -> None:
        while self._parked:
            runner = self._parked.pop()
            if not runner.touched:
                self._coming += 1
                runner.coming = True
                runner.waiter.set_result(None)
                return
        if len(self._runners) < self._most:  # else all are busy, and will look again
            self._coming += 1
            runner = Runner(self._serve(), loop=self._loop, name="millpond-runner", context=Context())
            runner.add_done_callback(self._gone)
            self._runners.add(runner)

    def _gone(self, runner: asyncio.Task[None]) -> None:
        assert isinstance(runner, Runner)
        self._runners.discard(runner)
        self._arrived(runner)
        if runner in self._parked:
            self._parked.remove(runner)
        if not runner.cancelled() and (error := runner.exception()) is not None:
            self._loop.call_exception_handler({"message": "A millpond runner failed", "exception": error})
        if not self._closed and self._ready():
            self.wake()

    def _arrived(self, runner: Runner) -> None:
        if runner.coming:
            runner.coming = False
            self._coming -= 1
            self._until = monotonic() + _BURST

    async def _serve(self) -> None:
        me = cast(Runner, asyncio.current_task())
        self._arrived(me)
        while not me.touched:
            attempt = self._take()
            if attempt is None:
                await self._park(me)
                continue
            if attempt.task.isolation != "loop":
                self._elsewhere(attempt)
            elif (rest := self._begin(attempt, me)) is not None:
                await self._go_on(attempt, rest)
            tired = attempt.started > self._until
            attempt = rest = None  # a runner that waits keeps nothing of what it ran
            if tired:
                await self._breathe(me)

    async def _park(self, me: Runner) -> None:
        """Wait to be called."""
        me.attempt = None
        me.waiter = self._loop.create_future()
        self._parked.append(me)
        await me.waiter
        self._arrived(me)

    async def _breathe(self, me: Runner) -> None:
        """Let the loop have its turn. One runner that comes back from it is enough."""
        if self._coming:
            return await self._park(me)
        self._coming += 1
        me.coming = True
        await asyncio.sleep(0)
        self._arrived(me)
        return None

    def _begin(self, attempt: Attempt, me: Runner) -> Awaitable[Any] | None:
        """Run the attempt until it ends or waits. In a context of its own, and an empty one."""
        me.attempt = attempt
        attempt.runner = me
        context = Context()
        outcome: Outcome
        try:
            run = attempt.task.run if self._run_of is None else self._run_of(attempt)
            made = context.run(run, attempt)
            coroutine = made if type(made) is CoroutineType else _awaiting(made)
            try:
                waits_for = context.run(coroutine.send, None)
            except StopIteration as end:
                outcome = Completed(end.value)
            else:
                return stepped(coroutine, context, waits_for, attempt)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it fails this attempt and nothing else
            outcome = verdict(attempt, error)
        self._ended(attempt, outcome)
        return None

    async def _go_on(self, attempt: Attempt, rest: Awaitable[Any]) -> None:
        self._waits(attempt)
        for _ in range(_CALL):
            if self._ready():
                self._call()
        outcome: Outcome
        try:
            outcome = Completed(await rest)
        except BaseException as error:  # noqa: BLE001 - as above
            outcome = verdict(attempt, error)
        self._ended(attempt, outcome)


async def _awaiting(made: object) -> object:
    return await made if isawaitable(made) else made
