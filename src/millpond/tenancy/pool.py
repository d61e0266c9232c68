"""The tenant pool: takes tasks, runs them in fair turns, tells how each ended. In memory; usable alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from contextlib import suppress
from contextvars import Context
from threading import get_ident
from types import TracebackType
from typing import Self

from millpond.clock import monotonic
from millpond.errors import ForkedPool, PoolQueueFull, PoolStopping, SubmitError, TenantQueueFull, UnknownTenant
from millpond.retry import Uniform
from millpond.settings import PoolSettings
from millpond.tenancy import forks
from millpond.tenancy.attempt import Attempt
from millpond.tenancy.custody import Custody
from millpond.tenancy.health import Health, Room, TenantHealth, TenantsHealth
from millpond.tenancy.instrument import Instrument, Lens
from millpond.tenancy.task import Task
from millpond.tenancy.tenants import Directory, TenantProvider
from millpond.tenancy.turns import Lane, Turns
from millpond.tenancy.watchdog import Watchdog

__all__ = ["Health", "Room", "TenantPool"]


class TenantPool:
    """Runs tasks, at most worker_count at once, tenants in turn.

    Everything but `health`, `queued` and `running` is for the thread of the event loop that the pool was started on.
    """

    def __init__(
        self,
        settings: PoolSettings | None = None,
        *,
        tenants: TenantProvider | None = None,
        instrument: Instrument | None = None,
        uniform: Uniform = random.uniform,
    ) -> None:
        """Without `tenants`, tasks of every tenant are taken, each with the default limit and weight 1.

        `instrument` looks on, for telemetry. `uniform` chooses the waits before retries.
        """
        self._settings = settings = settings or PoolSettings()
        self._directory = Directory(settings, tenants)
        self._lens = None if instrument is None else Lens(instrument)
        self._uniform = uniform
        self._turns: Turns[Attempt] = Turns(settings.worker_count)
        self._custody: Custody | None = None
        self._watchdog: Watchdog | None = None
        self._capacity = 0
        self._refreshing: asyncio.Task[None] | None = None
        self._grace_ends = 0.0
        self._stopping: asyncio.Task[None] | None = None
        self._forked = False
        forks.poison(self)

    # ── tasks ──

    def submit(self, task: Task) -> None:
        """Take a task. Never blocks, and runs nothing before the loop has its turn.

        Raises PoolStopping, UnknownTenant, PoolQueueFull or TenantQueueFull; then nothing was kept of it.
        """
        custody = self._custody
        if custody is None or not custody.open:
            raise ForkedPool(task.tenant) if self._forked else PoolStopping(task.tenant)
        if get_ident() != custody.thread:
            raise RuntimeError(
                "submit was called from another thread than that of the pool's event loop; "
                "use loop.call_soon_threadsafe(pool.submit, task), or a BlockingTenantPool."
            )
        custody.admit(task, self._lane_for(task.tenant))

    def submit_many(self, tasks: Iterable[Task]) -> list[tuple[Task, SubmitError]]:
        """Take what can be taken of many tasks. Gives back the others, each with the error `submit` raises for it."""
        refused: list[tuple[Task, SubmitError]] = []
        for task in tasks:
            try:
                self.submit(task)
            except SubmitError as error:
                refused.append((task, error))
        return refused

    def cancel(self, task: object, reason: str = "cancelled") -> bool:
        """Cancel a task, given itself or its id. False when the pool does not hold it (any more).

        One that has not started never will, and is completed as Cancelled here and now. An async one that runs is
        cancelled: it is Cancelled once it raises, but Completed when it returns nevertheless. One in a thread or a
        process is completed as Cancelled here and now; the process is killed, and the thread, which can only look at
        its context, keeps its slot until it ends.
        """
        name = task.id if isinstance(task, Task) and task.id is not None else task
        return self._custody is not None and self._custody.cancel(name, reason)

    async def drained(self) -> None:
        """Wait until the pool holds no task: all that it has taken are told of."""
        if self._custody is not None:
            await self._custody.emptied(until=lambda: None)

    # ── what can be seen of it ──

    @property
    def queued(self) -> int:
        """Tasks that wait, those that wait for a retry included."""
        return self._turns.queued + self._turns.resting

    @property
    def running(self) -> int:
        """Slots in use."""
        return self._turns.running

    def room(self) -> Room:
        """How much `submit` would take now."""
        size = self._settings.tenant_queue_size
        return Room(
            slots=max(0, self._capacity - self._turns.held) if self._is_open else 0,
            tenants={lane.tenant: max(0, size + lane.limit - lane.held) for lane in self._turns.lanes.values()},
            default=size + self._directory.smallest_limit,
        )

    def active_tenants(self) -> tuple[str, ...]:
        """The tenants that may use the pool, as the provider last said; without one, those that have tasks in it."""
        active = self._directory.active
        return tuple(self._turns.lanes if active is None else active)

    def health(self) -> Health:
        """A snapshot. Takes as long as there are tenants that hold tasks. From any thread."""
        directory, settings, watchdog = self._directory, self._settings, self._watchdog
        is_open, stuck = self._is_open, 0 if self._custody is None else self._custody.stuck
        failure = directory.failure
        return Health(
            healthy=is_open and stuck < settings.worker_count and not (watchdog is not None and watchdog.blocked),
            stopping=self._stopping is not None and not self._stopping.done(),
            queue_depth=self.queued,
            queue_capacity=settings.task_queue_size,
            worker_count=settings.worker_count,
            concurrency=directory.slots,
            running=self.running,
            stuck=stuck,
            loop_lag=0.0 if watchdog is None else watchdog.lag,
            provider_failure=None if failure is None else f"{type(failure).__name__}: {failure}",
            tenants=TenantsHealth(
                holding={lane.tenant: self._health_of(lane) for lane in list(self._turns.lanes.values())},
                active=directory.active or (),
                idle=self._idle,
            ),
        )

    # ── its life ──

    async def start(self) -> None:
        """Begin to take tasks. Raises what the tenant provider raises; then nothing is left running.

        A pool that has stopped may be started again.
        """
        if self._forked:
            raise ForkedPool("")
        await self._directory.refresh()
        if self._custody is not None:
            raise RuntimeError("The pool was started already.")
        if self._settings.blocked_after is not None:
            self._watchdog = Watchdog(self._settings.blocked_after, self._lagged)
        self._stopping = None
        self._turns = Turns(self._settings.worker_count)
        self._custody = Custody(self._settings, self._turns, self._uniform, self._lens)
        self._take_over_terms()
        if self._directory.active is not None:
            self._refreshing = asyncio.get_running_loop().create_task(
                self._directory.keep_fresh(self._take_over_terms), name="millpond-tenants", context=Context()
            )

    async def stop(self, graceful_timeout: float | None = None) -> None:
        """Take no more tasks, hand back those that wait, let those that run end; then cancel what is left.

        Returns in bounded time: graceful_timeout (that of the settings, when not given) and their cancel_timeout.
        Called while the pool stops already, it waits for that, and can only shorten it.
        """
        self.hurry(self._settings.graceful_timeout if graceful_timeout is None else graceful_timeout)
        if self._stopping is not None:
            await asyncio.shield(self._stopping)

    def hurry(self, graceful_timeout: float = 0.0) -> None:
        """Begin to stop, or shorten a stop that has begun: without grace, what runs is cancelled now.

        `stop` waits for the end of it.
        """
        if self._custody is None:
            return
        ends = monotonic() + graceful_timeout
        if self._stopping is None:
            self._grace_ends = ends
            self._custody.close()
            self._stopping = asyncio.get_running_loop().create_task(
                self._wind_down(self._custody), name="millpond-stop", context=Context()
            )
        elif ends < self._grace_ends:
            self._grace_ends = ends
            self._custody.look_again()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def after_fork(self) -> None:
        """In a forked child: everything here is the parent's."""
        self._forked = True
        if self._custody is not None:
            self._custody.forget()

    # ── inside ──

    @property
    def _is_open(self) -> bool:
        return self._custody is not None and self._custody.open

    def _lane_for(self, tenant: str) -> Lane[Attempt]:
        """The tenant's lane, with room for one more."""
        active, turns = self._directory.active, self._turns
        if active is not None and tenant not in active:
            raise UnknownTenant(tenant)
        if turns.held >= self._capacity:
            raise PoolQueueFull(tenant, self._settings.task_queue_size)
        lane = turns.lanes.get(tenant)
        if lane is None:
            return turns.open(tenant, *self._directory.terms(tenant))
        if lane.held >= lane.limit + self._settings.tenant_queue_size:
            raise TenantQueueFull(tenant, self._settings.tenant_queue_size)
        return lane

    def _take_over_terms(self) -> None:
        """Apply what the directory says now. Tenants that are gone run empty on their last terms."""
        self._capacity = self._directory.slots + self._settings.task_queue_size
        for lane in self._turns.lanes.values():
            if lane.tenant in self._directory:
                self._turns.change(lane, *self._directory.terms(lane.tenant))
        if self._custody is not None:
            self._custody.wake()

    def _health_of(self, lane: Lane[Attempt]) -> TenantHealth:
        return TenantHealth(
            depth=len(lane.queue) + lane.resting,
            capacity=self._settings.tenant_queue_size,
            limit=lane.limit,
            running=lane.running,
        )

    def _idle(self, tenant: str) -> TenantHealth:
        limit, _ = self._directory.terms(tenant)
        return TenantHealth(depth=0, capacity=self._settings.tenant_queue_size, limit=limit, running=0)

    def _lagged(self, seconds: float) -> None:
        if self._lens is not None:
            self._lens.lagged(seconds)

    async def _wind_down(self, custody: Custody) -> None:
        """Each step leaves less. Whoever cancels one is in a hurry, and brings on the next."""
        if self._refreshing is not None:
            self._refreshing.cancel()
        with suppress(asyncio.CancelledError):
            await custody.emptied(until=lambda: self._grace_ends)
        custody.interrupt()
        patience_ends = monotonic() + self._settings.cancel_timeout
        with suppress(asyncio.CancelledError):
            await custody.emptied(until=lambda: patience_ends)
        custody.write_off()
        with suppress(asyncio.CancelledError):
            await custody.end()
        if self._watchdog is not None:
            self._watchdog.stop()
        self._watchdog = self._refreshing = self._custody = None
