"""The tenant pool: takes tasks, runs them in fair turns, tells how each ended. In memory; usable alone."""

from __future__ import annotations

import asyncio
import logging
import random
from asyncio import CancelledError
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from millpond.clock import monotonic
from millpond.errors import PoolQueueFull, PoolStopping, SubmitError, TenantQueueFull, UnknownTenant
from millpond.executors.mailbox import Mailbox
from millpond.executors.threads import Threads
from millpond.outcome import Cancelled, Completed, Failed, Outcome, Released
from millpond.retry import Uniform, full_jitter
from millpond.settings import PoolSettings
from millpond.tenancy.attempt import Attempt, Stage, verdict
from millpond.tenancy.deadlines import Deadlines
from millpond.tenancy.health import Room
from millpond.tenancy.runners import Runner, Runners
from millpond.tenancy.task import Cause, Task
from millpond.tenancy.tenants import Directory, TenantProvider
from millpond.tenancy.turns import Lane, Turns

__all__ = ["Room", "TenantPool"]

logger = logging.getLogger(__name__)

_STOPPING: Final = "stopping"


class TenantPool:
    """Runs tasks, at most worker_count at once, tenants in turn.

    Everything but `health` is for the thread of the event loop that started it.
    """

    def __init__(
        self,
        settings: PoolSettings | None = None,
        *,
        tenants: TenantProvider | None = None,
        uniform: Uniform = random.uniform,
    ) -> None:
        """Without `tenants`, tasks of every tenant are taken, each with the default limit and weight 1.

        `uniform` chooses the waits before retries.
        """
        self._settings = settings = settings or PoolSettings()
        self._uniform = uniform
        self._directory = Directory(settings, tenants)
        self._turns: Turns[Attempt] = Turns(settings.worker_count)
        self._held: dict[object, Attempt] = {}
        self._open = False
        self._grace_ends = 0.0
        self._stopper: asyncio.Task[None] | None = None

    @property
    def queued(self) -> int:
        """Tasks that wait, those that wait for a retry included."""
        return self._turns.queued + self._turns.resting

    @property
    def running(self) -> int:
        """Slots in use."""
        return self._turns.running

    def submit(self, task: Task) -> None:
        """Take a task. Never blocks, and runs nothing at once.

        Raises PoolStopping, UnknownTenant, PoolQueueFull or TenantQueueFull; then nothing was kept of it.
        """
        lane = self._lane_for(task.tenant)
        name = task if task.id is None else task.id
        if name in self._held:
            self._rename(name)
        self._held[name] = attempt = Attempt(task, lane=lane, name=name)
        self._turns.push(lane, attempt)
        self._runners.wake()

    def submit_many(self, tasks: Iterable[Task]) -> list[tuple[Task, SubmitError]]:
        """Take what can be taken of many tasks; the others are given back, each with the error `submit` would raise."""
        refused: list[tuple[Task, SubmitError]] = []
        for task in tasks:
            try:
                self.submit(task)
            except SubmitError as error:
                refused.append((task, error))
        return refused

    def room(self) -> Room:
        """How much `submit` would take now."""
        queue_size = self._settings.tenant_queue_size
        return Room(
            slots=max(0, self._capacity - self._turns.held) if self._open else 0,
            tenants={lane.tenant: max(0, queue_size + lane.limit - lane.held) for lane in self._turns.lanes.values()},
            default=queue_size + self._directory.smallest_limit,
        )

    def cancel(self, task: object, reason: str = "cancelled") -> bool:
        """Cancel a task, given itself or its id. False when the pool does not hold it (any more).

        One that has not started never will, and is completed as Cancelled here and now. One that runs is asked to end:
        it is Cancelled when it does so by raising, and Completed when it returns nevertheless.
        """
        name = task.id if isinstance(task, Task) and task.id is not None else task
        attempt = self._held.get(name)
        if attempt is None:
            return False
        if attempt.stage is Stage.RUNNING:
            self._interrupt(attempt, Cause.CANCEL, reason)
        else:
            self._withdraw(attempt, Cancelled(reason))
        return True

    async def start(self) -> None:
        """Begin to take tasks. Raises what the tenant provider raises; then nothing is left running."""
        loop = asyncio.get_running_loop()
        await self._directory.refresh()
        self._changed = asyncio.Event()
        self._deadlines: Deadlines[Attempt] = Deadlines(loop, self._due)
        self._threads: Threads[Attempt] = Threads(self._settings.worker_count, Mailbox(loop), self._returned)
        self._runners = Runners(
            loop,
            self._settings.worker_count,
            take=self._take,
            ready=lambda: self._turns.ready,
            elsewhere=self._run_elsewhere,
            waits=self._watch,
            ended=self._ended,
        )
        self._refresh_terms()
        self._open = True

    async def stop(self, graceful_timeout: float | None = None) -> None:
        """Take no more tasks, hand back those that wait, let those that run end; then cancel what is left.

        Returns in bounded time: graceful_timeout (the settings', by default) and cancel_timeout. A second call can only
        shorten the first's.
        """
        self._begin_stop(self._settings.graceful_timeout if graceful_timeout is None else graceful_timeout)
        if self._stopper is not None:
            await asyncio.shield(self._stopper)

    def hurry(self) -> None:
        """Stop without grace: everything that runs is cancelled now. `stop` waits for its end."""
        self._begin_stop(0.0)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # ── tenants ──

    def _lane_for(self, tenant: str) -> Lane[Attempt]:
        """The tenant's lane, with room for one more."""
        if not self._open:
            raise PoolStopping(tenant)
        roll = self._directory.roll
        if roll is not None and tenant not in roll.tenants:
            raise UnknownTenant(tenant)
        if self._turns.held >= self._capacity:
            raise PoolQueueFull(tenant, self._settings.task_queue_size)
        lane = self._turns.lanes.get(tenant)
        if lane is None:
            terms = self._directory.terms(tenant)
            assert terms is not None
            return self._turns.open(tenant, *terms)
        if lane.held >= lane.limit + self._settings.tenant_queue_size:
            raise TenantQueueFull(tenant, self._settings.tenant_queue_size)
        return lane

    def _refresh_terms(self) -> None:
        """The tenants have changed: so have the lanes. Those of tenants that are gone run empty on their last terms."""
        self._capacity = self._directory.slots + self._settings.task_queue_size
        for lane in self._turns.lanes.values():
            terms = self._directory.terms(lane.tenant)
            if terms is not None:
                self._turns.change(lane, *terms)
        if self._turns.ready:
            self._runners.wake()

    def _rename(self, name: object) -> None:
        """Another task takes this name: the older one keeps its place, under a name of its own."""
        older = self._held.pop(name)
        older.name = object()
        self._held[older.name] = older

    # ── the life of an attempt ──

    def _take(self) -> Attempt | None:
        attempt = self._turns.pop()
        if attempt is not None:
            attempt.stage = Stage.RUNNING
            attempt.started = now = monotonic()
            timeout = attempt.task.timeout
            if timeout is None:
                timeout = self._settings.task_timeout
            if timeout is not None:
                attempt.deadline = now + timeout
        return attempt

    def _watch(self, attempt: Attempt) -> None:
        if attempt.deadline is not None:
            self._deadlines.add(attempt.deadline, attempt)

    def _run_elsewhere(self, attempt: Attempt) -> None:
        self._watch(attempt)
        self._threads.submit(attempt.task.run, attempt)

    def _returned(self, attempt: Attempt, value: object, error: BaseException | None) -> None:
        """A thread has ended with an attempt."""
        self._ended(attempt, Completed(value) if error is None else verdict(attempt, error))
        if self._turns.ready:
            self._runners.wake()

    def _due(self, attempt: Attempt) -> None:
        """The moment of an attempt has come: its time is up, or its rest is over."""
        if attempt.stage is Stage.RUNNING:
            self._interrupt(attempt, Cause.TIMEOUT)
        else:
            attempt.stage = Stage.QUEUED
            self._turns.put_back(self._lane(attempt), attempt)
            self._runners.wake()

    def _interrupt(self, attempt: Attempt, cause: Cause, reason: str = "") -> None:
        """Ask a running attempt to end. The first cause stands, but for a cancel: what somebody cancelled, stays so."""
        asked = attempt.cause is not None
        if not asked or cause is Cause.CANCEL:
            attempt.cause, attempt.reason = cause, reason
        if isinstance(attempt.hand, Runner):
            if not asked or cause is Cause.STOP:
                attempt.hand.cancel()
        elif cause is not Cause.STOP:
            self._abandon(attempt)

    def _abandon(self, attempt: Attempt) -> None:
        """Say now what an attempt has come to that cannot be stopped. Its thread keeps the slot until it ends."""
        outcome = verdict(attempt, CancelledError())
        if self._has_another(attempt, outcome):
            self._turns.rest(self._lane(attempt))
            self._try_again(attempt, outcome)
        else:
            self._complete(attempt, outcome)

    def _ended(self, attempt: Attempt, outcome: Outcome) -> None:
        """An attempt runs no more."""
        if attempt.deadline is not None:
            self._deadlines.drop(attempt)
        lane = self._lane(attempt)
        if attempt.over:
            self._turns.release(lane)
        elif self._has_another(attempt, outcome):
            self._turns.rest(lane)
            self._turns.release(lane)
            self._try_again(attempt, outcome)
        else:
            self._turns.release(lane)
            self._complete(attempt, outcome)

    def _has_another(self, attempt: Attempt, outcome: Outcome) -> bool:
        count = self._settings.retry_policy.attempts.count
        return attempt.attempt < count and isinstance(outcome, Failed) and self._open

    def _try_again(self, attempt: Attempt, outcome: Outcome) -> None:
        """Another attempt, later. Each has its own object: a thread of the last one may still look at its own."""
        attempt.over = True
        policy = self._settings.retry_policy.attempts
        again = Attempt(attempt.task, attempt=attempt.attempt + 1, lane=attempt.lane, name=attempt.name)
        again.stage = Stage.RESTING
        again.before = outcome if isinstance(outcome, Failed) else None
        self._held[again.name] = again
        wait = full_jitter(attempt.attempt, policy.min_delay, policy.max_delay, self._uniform)
        self._deadlines.add(monotonic() + wait, again)

    def _withdraw(self, attempt: Attempt, outcome: Outcome) -> None:
        """An attempt that has not started never will."""
        lane = self._lane(attempt)
        if attempt.stage is Stage.QUEUED:
            self._turns.remove(lane, attempt)
        else:
            self._deadlines.drop(attempt)
            self._turns.give_up(lane)
        self._complete(attempt, outcome)

    def _complete(self, attempt: Attempt, outcome: Outcome) -> None:
        attempt.over = True
        del self._held[attempt.name]
        try:
            attempt.task.complete(attempt.task, outcome)
        except BaseException:
            logger.exception("The completion callback of %s failed; nothing else changes.", _shown(attempt))
        if not self._open and not self._held:
            self._changed.set()

    def _lane(self, attempt: Attempt) -> Lane[Attempt]:
        assert attempt.lane is not None
        return attempt.lane

    # ── stopping ──

    def _begin_stop(self, grace: float) -> None:
        if self._open:
            self._open = False
            self._grace_ends = monotonic() + grace
            for attempt in [held for held in self._held.values() if held.stage is not Stage.RUNNING]:
                self._withdraw(attempt, attempt.before or Released(_STOPPING))
            self._stopper = asyncio.get_running_loop().create_task(self._wind_down(), name="millpond-pool-stop")
        else:
            self._grace_ends = min(self._grace_ends, monotonic() + grace)
            if self._stopper is not None:
                self._changed.set()

    async def _wind_down(self) -> None:
        await self._emptied(lambda: self._grace_ends)
        for attempt in list(self._held.values()):
            self._interrupt(attempt, Cause.STOP, _STOPPING)
        patience = monotonic() + self._settings.cancel_timeout
        await self._emptied(lambda: patience)
        for attempt in list(self._held.values()):
            logger.error("%s did not end when cancelled; it is written off.", _shown(attempt))
            self._complete(attempt, Released(_STOPPING, started=True))
        await self._runners.close()
        self._threads.close()
        self._deadlines.close()

    async def _emptied(self, until: Callable[[], float]) -> None:
        """Wait until nothing is held, or until the moment comes, which may change meanwhile."""
        while self._held and (left := until() - monotonic()) > 0:
            self._changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()


def _shown(attempt: Attempt) -> str:
    task = attempt.task
    return f"task {task.id if task.id is not None else '?'} ({task.key or 'no key'}) of tenant {task.tenant!r}"
