"""Everything the pool has taken and not yet told of. What is in custody leaves it once, by being told of."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from millpond.clock import monotonic
from millpond.outcome import Cancelled, Failed, Outcome, Released
from millpond.retry import Uniform, full_jitter
from millpond.settings import PoolSettings
from millpond.tenancy.attempt import Attempt, Stage, verdict
from millpond.tenancy.crew import Crew
from millpond.tenancy.deadlines import Deadlines
from millpond.tenancy.instrument import Lens
from millpond.tenancy.logs import logger_of
from millpond.tenancy.task import Cause, Task
from millpond.tenancy.turns import Lane, Turns

logger = logger_of(__name__)

STOPPING: Final = "stopping"
"""The reason of those that were handed back."""

_RUNNING: Final = Stage.RUNNING
"""Looked up once for each task: an enum's member costs three times a global."""


class Custody:
    """The attempts of a pool, each from `admit` until its outcome is told, and every move of one."""

    def __init__(self, settings: PoolSettings, turns: Turns[Attempt], uniform: Uniform, lens: Lens | None) -> None:
        self._turns = turns
        self._uniform = uniform
        self._lens = lens
        self._task_timeout = settings.task_timeout
        self._attempts = settings.retry_policy.attempts
        self._retries = self._attempts.count > 1
        self._held: dict[object, Attempt] = {}
        self._emptied = asyncio.Event()
        self._deadlines: Deadlines[Attempt] = Deadlines(asyncio.get_running_loop(), self._due)
        self._crew = Crew(
            settings, take=self._take, ready=lambda: turns.ready, waits=self._watch, ended=self._ended, lens=lens
        )
        self.thread = threading.get_ident()
        """The loop's: for no other is it safe to come here."""
        self.open = True
        """Whether tasks are admitted, and failed ones tried again."""
        self.stuck = 0
        """Threads whose attempt is over, and which still run, each in its slot."""

    def admit(self, task: Task, lane: Lane[Attempt]) -> None:
        """Take a task into custody: from here on, its outcome will be told."""
        name = task if task.id is None else task.id
        if name in self._held:
            self._rename(name)
        attempt = self._held[name] = Attempt(task, lane=lane, name=name)
        if self._lens is not None:
            attempt.captured = self._lens.submitted(task)
        self._turns.push(lane, attempt)
        self._crew.wake()

    def cancel(self, name: object, reason: str) -> bool:
        """Withdraw it, or ask it to end; whether there is such a one."""
        attempt = self._held.get(name)
        if attempt is None:
            return False
        if attempt.stage is Stage.RUNNING:
            self._interrupt(attempt, Cause.CANCEL, reason)
        else:
            self._withdraw(attempt, Cancelled(reason))
        return True

    def wake(self) -> None:
        """Tenants may run what they could not."""
        if self._turns.ready:
            self._crew.wake()

    # ── closing: each step leaves less ──

    def close(self) -> None:
        """Admit nothing more, and hand back what does not run. What has failed and waits for a retry, has failed."""
        self.open = False
        for attempt in list(self._held.values()):
            if attempt.stage is not Stage.RUNNING and not attempt.over:
                self._withdraw(attempt, attempt.before or Released(STOPPING))

    def interrupt(self) -> None:
        """Ask everything that runs to end."""
        for attempt in list(self._held.values()):
            if not attempt.over:
                self._interrupt(attempt, Cause.STOP, STOPPING)

    def write_off(self) -> None:
        """Tell of what did not end as handed back, whatever it goes on to do."""
        for attempt in list(self._held.values()):
            if not attempt.over:
                logger.error("The %s did not end when it was cancelled, and is written off.", attempt)
                self.stuck += 1
                self._complete(attempt, Released(STOPPING, started=attempt.has_started))

    async def emptied(self, until: Callable[[], float | None]) -> None:
        """Wait until nothing is held, or until a moment, if there is one. If it is moved, call `look_again`."""
        while self._held:
            moment = until()
            if moment is not None and moment <= monotonic():
                return
            self._emptied.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(None if moment is None else moment - monotonic()):
                    await self._emptied.wait()

    def look_again(self) -> None:
        """The moment that `emptied` waits for has been moved."""
        self._emptied.set()

    async def end(self) -> None:
        """Leave nothing behind but threads that still run something. Nothing may be held."""
        self._deadlines.close()
        await self._crew.close()

    def forget(self) -> None:
        """In a forked child: what is held is the parent's to run and to tell of."""
        self.open = False
        self._turns.slots = 0
        self._crew.forget()
        for attempt in self._held.values():
            attempt.over = True
        self._held.clear()

    # ── the moves of an attempt ──

    def _take(self) -> Attempt | None:
        attempt = self._turns.pop()
        if attempt is not None:
            attempt.stage = _RUNNING
            attempt.begin(monotonic(), self._task_timeout)
        return attempt

    def _watch(self, attempt: Attempt) -> None:
        if attempt.deadline is not None and not attempt.over:
            self._deadlines.add(attempt.deadline, attempt)

    def _due(self, attempt: Attempt) -> None:
        """Its moment has come: its time is up, or its rest is over."""
        if attempt.stage is Stage.RUNNING:
            self._interrupt(attempt, Cause.TIMEOUT)
        else:
            attempt.stage = Stage.QUEUED
            self._turns.put_back(attempt.lane, attempt)
            self._crew.wake()

    def _interrupt(self, attempt: Attempt, cause: Cause, reason: str = "") -> None:
        """Ask a running attempt to end, once; again only when the pool stops.

        The first cause stands, but for a cancel: what somebody has cancelled must not be tried again.
        """
        asked = attempt.cause is not None
        if not asked or cause is Cause.CANCEL:
            attempt.cause, attempt.reason = cause, reason
        if asked and cause is not Cause.STOP:
            return
        if not self._crew.interrupt(attempt) and cause is not Cause.STOP:
            self._abandon(attempt)

    def _abandon(self, attempt: Attempt) -> None:
        """Tell now of an attempt whose thread will not say when it ends. Until then it keeps its slot."""
        self.stuck += 1
        outcome = verdict(attempt, asyncio.CancelledError())
        self._settle(attempt, outcome, again=self._rests_before_another(attempt, outcome))

    def _ended(self, attempt: Attempt, outcome: Outcome) -> None:
        """It runs no more. If it was told of already, it is only a slot that comes free."""
        if attempt.over:
            self.stuck -= 1
            self._turns.release(attempt.lane)
            return
        again = self._retries and self._rests_before_another(attempt, outcome)
        self._turns.release(attempt.lane)
        self._settle(attempt, outcome, again=again)

    def _settle(self, attempt: Attempt, outcome: Outcome, *, again: bool) -> None:
        """An attempt that had started has come to something: tell, or try again."""
        if attempt.deadline is not None:
            self._deadlines.drop(attempt)
        if self._lens is not None and attempt.has_started:
            self._lens.finished(attempt, outcome, monotonic() - attempt.started)
        if again:
            self._try_again(attempt, outcome)
        else:
            self._complete(attempt, outcome)

    def _rests_before_another(self, attempt: Attempt, outcome: Outcome) -> bool:
        """Whether the task is tried again; then its lane stays open for it."""
        if not isinstance(outcome, Failed) or attempt.attempt >= self._attempts.count or not self.open:
            return False
        self._turns.rest(attempt.lane)
        return True

    def _try_again(self, attempt: Attempt, outcome: Outcome) -> None:
        """The next attempt is an object of its own: a thread may still be looking at the last one."""
        attempt.over = True
        assert isinstance(outcome, Failed)
        following = Attempt(
            attempt.task,
            attempt=attempt.attempt + 1,
            lane=attempt.lane,
            name=attempt.name,
            stage=Stage.RESTING,
            before=outcome,
            captured=attempt.captured,
        )
        self._held[attempt.name] = following
        wait = full_jitter(attempt.attempt, self._attempts.min_delay, self._attempts.max_delay, self._uniform)
        self._deadlines.add(monotonic() + wait, following)

    def _withdraw(self, attempt: Attempt, outcome: Outcome) -> None:
        """It has not started, and never will."""
        if attempt.stage is Stage.QUEUED:
            self._turns.remove(attempt.lane, attempt)
        else:
            self._deadlines.drop(attempt)
            self._turns.give_up(attempt.lane)
        self._complete(attempt, outcome)

    def _complete(self, attempt: Attempt, outcome: Outcome) -> None:
        """Tell. The only place where a task leaves custody."""
        attempt.over = True
        del self._held[attempt.name]
        try:
            attempt.task.complete(attempt.task, outcome)
        except BaseException:
            logger.exception("The callback of %s failed; nothing else changes.", attempt)
        if not self._held:
            self._emptied.set()

    def _rename(self, name: object) -> None:
        """Another task takes this name. The older one stays, under a name that nobody knows."""
        older = self._held.pop(name)
        older.name = object()
        self._held[older.name] = older
