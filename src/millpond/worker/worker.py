"""The worker: wires the rooms, and says in which order they stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self
from weakref import WeakSet

import psycopg

from millpond.errors import DatabaseUnreachable, MillpondError
from millpond.events import LeaseLost, Observe, ObserveJobs, WorkerRegistered
from millpond.registry import ExecutorRegistry
from millpond.settings import WorkerSettings
from millpond.store.completion import Completer
from millpond.store.database import check_async, unsuitable
from millpond.store.link import Link
from millpond.tenancy.instrument import Instrument
from millpond.tenancy.pool import TenantPool
from millpond.worker.announcer import Announcer
from millpond.worker.bell import Bell
from millpond.worker.claimer import Claimer
from millpond.worker.heartbeats import Heartbeats
from millpond.worker.lease import Lease, LeaseOver
from millpond.worker.listener import Listener
from millpond.worker.outbox import Outbox
from millpond.worker.patience import Patience
from millpond.worker.registration import Registration, registered, worker_name
from millpond.worker.services import background, finishing
from millpond.worker.settler import Settler
from millpond.worker.tally import Tally, WorkerHealth
from millpond.worker.upkeep import Upkeep

logger = logging.getLogger(__name__)

_LONGEST_GOODBYE: Final = 5.0
"""Seconds that a call to the database may take once the worker was told to stop."""


class Worker:
    """Runs the jobs of one schema in this process: `await worker.run()`, or `async with worker:` beside an application.

    `stop()` lets running jobs end within the grace (`settings.pool.graceful_timeout`); jobs that were claimed but not
    started go back untouched. `hurry()` ends the grace: what still runs is cancelled and goes back, uncharged.
    """

    def __init__(
        self,
        dsn: str,
        registry: ExecutorRegistry,
        *,
        settings: WorkerSettings | None = None,
        observe: Observe | None = None,
        observe_jobs: ObserveJobs | None = None,
        instrument: Instrument | None = None,
    ) -> None:
        """`dsn` is a conninfo, a URI or an SQLAlchemy URL. The executors are those that are registered by now.

        `observe` is told of batches, `observe_jobs` of every completed job, every job that failed for good, and, now
        and then, of jobs that are still running; both in a thread of their own. `instrument` looks on at each attempt,
        where it runs: for telemetry.
        """
        self._dsn = dsn
        self._settings = settings or WorkerSettings()
        self._executors = {key: registry.get(key) for key in sorted(registry.keys())}
        self._announcer = Announcer(observe, observe_jobs)
        self._instrument = instrument
        self._stopping = asyncio.Event()
        self._ready = asyncio.Event()
        self._news = Bell()
        self._hurried = False
        self._ended = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: asyncio.Future[Tally] | None = None
        self._awaited: WeakSet[Link] = WeakSet()
        self._outbox = Outbox()
        self._after_outage = False
        self._tally = Tally()
        self._rooms: _Rooms | None = None
        if not self._executors:
            raise MillpondError("The registry is empty: register an executor before making a worker of it.")
        _warn_of_multiplied_attempts(self._settings)

    async def run(self) -> Tally:
        """Work until stopped, or until all is done (`settings.exit_when_done`); what was done.

        Raises DatabaseUnreachable, DatabaseUnsuitable or SchemaMismatch when the database cannot be used at the
        start, for want of rights among other things; afterwards an outage is waited for.
        """
        if self._loop is not None:
            raise MillpondError("This Worker has run before; make another one.")
        self._loop = asyncio.get_running_loop()
        try:
            with self._announcer:
                await self._run()
        finally:
            self._ended = True
            self._ready.set()
        if unwritten := len(self._outbox.pending) + len(self._outbox.refused):
            logger.error("%d outcomes could not be written; their jobs run again.", unwritten)
            self._tally.unwritten = unwritten
        return self._tally

    async def _run(self) -> None:
        patience = Patience("registration", self._announcer.announce)
        async with self._awaited_link("registration") as link:
            await self._check(link)
            refusal: psycopg.Error | None = None
            while not self._stopping.is_set():
                try:
                    async with registered(link, self._settings, self._executors) as registration:
                        patience.succeeded()
                        await self._serve(registration)
                        if not registration.exhausted:
                            return
                except* LeaseOver as over:
                    lost = _first(over)
                    self._after_outage = isinstance(lost, LeaseOver) and lost.silent
                    logger.error("%s What it held is cancelled; it registers anew.", lost)  # noqa: TRY400
                except* (DatabaseUnreachable, psycopg.Error) as outage:
                    error = _first(outage)
                    if not self._ready.is_set() and isinstance(error, psycopg.errors.InsufficientPrivilege):
                        refusal = error  # to be raised outside of this clause, which would make a group of it
                    else:
                        await patience.failed(error)
                if refusal is not None:
                    raise unsuitable(refusal)

    async def ready(self) -> None:
        """Wait until the worker is registered and claims. Raises MillpondError when it has ended."""
        await self._ready.wait()
        if self._ended:
            raise MillpondError("This Worker has ended.")

    async def finished(self) -> Tally:
        """Wait until a worker that was started with `async with` has ended; what was done. Raises what ended it."""
        if self._running is not None:
            await asyncio.shield(self._running)
        return self._tally

    def health(self) -> WorkerHealth:
        """How it is at this moment. From any thread."""
        rooms, stopping = self._rooms, self._stopping.is_set()
        pool = rooms.pool.health() if rooms else None
        beat_age = rooms.lease.beat_age if rooms else None
        return WorkerHealth(
            worker_id=rooms.registration.worker_id if rooms else None,
            healthy=bool(pool and pool.healthy) and not stopping and (beat_age or 0.0) < self._settings.stale_timeout,
            stopping=stopping,
            lease=self._settings.stale_timeout,
            beat_age=beat_age,
            unwritten=rooms.settler.waiting if rooms else len(self._outbox.pending),
            pool=pool,
        )

    def stop(self) -> None:
        """Claim no more, let running jobs end within the grace, write everything, end. From any thread; repeatable."""
        self._on_loop(self._stop)

    def hurry(self) -> None:
        """Stop, and end the grace now. From any thread; repeatable."""
        self._on_loop(self._hurry)

    async def __aenter__(self) -> Self:
        """Start, and wait until it claims. Raises as `run` does."""
        self._running = running = asyncio.ensure_future(self.run())
        try:
            await self._ready.wait()
        except BaseException:
            self.hurry()
            await asyncio.wait({running})
            raise
        if self._ended:
            await running
        running.add_done_callback(_log_failure)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._running is not None:
            await self._running

    async def _serve(self, registration: Registration) -> None:
        """Claim, run and settle under one registration. The order of nesting is the order of stopping, inside out."""
        async with contextlib.AsyncExitStack() as links:
            settings = self._settings
            due = Bell()
            pool = TenantPool(settings.pool, instrument=self._instrument)
            settler = Settler(
                await links.enter_async_context(self._link("settler")),
                settings,
                registration.worker_id,
                on_written=lambda: claimer.work_was_done(),
                announcer=self._announcer,
                outbox=self._outbox,
                tally=self._tally,
            )
            claimer = Claimer(
                await links.enter_async_context(self._awaited_link("claimer")),
                settings,
                registration,
                self._executors,
                pool=pool,
                settler=settler,
                bell=self._news,
                complete_in=Completer(settings.schema),
                announcer=self._announcer,
            )

            def give_up(reason: str) -> None:
                """The lease is over: nothing held under it may be finished, and nothing of what still runs written."""
                self._announcer.announce(LeaseLost(registration.worker_id, reason))
                registration.over = True
                settler.give_up()
                pool.hurry()

            upkeep = Upkeep(
                self._link("upkeep"),
                settings,
                list(self._executors),
                bell=due,
                observe=self._announcer.announce,
                after_outage=self._after_outage,
            )
            lease = Lease(self._dsn, registration, settings, on_over=give_up, observe=self._announcer.announce)
            self._rooms = _Rooms(registration, lease, settler, pool)
            links.callback(self._leave_rooms)
            async with (
                background(lease),  # beats while jobs drain
                finishing(settler),  # writes until the last outcome is in
                pool,  # drains; hands back what has not started
                background(upkeep, *self._listeners(due), *self._heartbeats(claimer)),
            ):
                if self._hurried:
                    pool.hurry()
                self._announcer.announce(WorkerRegistered(registration.worker_id, worker_name()))
                logger.info(
                    "Worker %s serves %s in queues %s; its lease is %g s.",
                    registration.worker_id,
                    ", ".join(self._executors),
                    ", ".join(settings.queues),
                    settings.stale_timeout,
                )
                self._ready.set()
                await claimer.run(until=self._stopping)  # stops first: no new water

    def _leave_rooms(self) -> None:
        self._rooms = None

    def _link(self, role: str) -> Link:
        return Link(self._dsn, role=role, timeout=self._settings.statement_timeout)

    def _awaited_link(self, role: str) -> Link:
        """A link whose calls a stop has to wait for: they may not take long then."""
        link = self._link(role)
        self._awaited.add(link)
        return link

    def _listeners(self, due: Bell) -> list[Listener]:
        if not self._settings.listen:
            return []
        settings = self._settings
        link = Link(settings.listen_dsn or self._dsn, role="listener", timeout=settings.statement_timeout)
        trusted = settings.listen_dsn is not None
        bells, observe = (self._news, due), self._announcer.announce
        return [Listener(link, settings.schema, bells, observe=observe, trust_pooler=trusted)]

    def _heartbeats(self, claimer: Claimer) -> list[Heartbeats]:
        if not self._announcer.jobs_are_observed:
            return []
        return [Heartbeats(self._announcer, claimer.running_since, every=self._settings.beat_interval)]

    async def _check(self, link: Link) -> None:
        try:
            await link.talk(lambda connection: check_async(connection, self._settings.schema))
        except psycopg.errors.InsufficientPrivilege as error:
            raise unsuitable(error) from error

    def _on_loop(self, callback: Callable[[], None]) -> None:
        if self._loop is None:
            callback()
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has stopped already
            self._loop.call_soon_threadsafe(callback)

    def _stop(self) -> None:
        self._stopping.set()
        self._news.ring()
        for link in self._awaited:
            link.hurry(_LONGEST_GOODBYE)

    def _hurry(self) -> None:
        self._hurried = True
        self._stop()
        if self._rooms is not None:
            self._rooms.pool.hurry()


@dataclass(frozen=True, slots=True)
class _Rooms:
    """What exists while a registration lasts."""

    registration: Registration
    lease: Lease
    settler: Settler
    pool: TenantPool


def _warn_of_multiplied_attempts(settings: WorkerSettings) -> None:
    attempts = settings.pool.retry_policy.attempts.count
    if attempts != 1:
        logger.warning(
            "retry_policy.attempts.count is %d: the pool runs up to %d times what the store counts as one attempt. "
            "Set it to 1 to leave retries to the store.",
            attempts,
            attempts,
        )


def _log_failure(running: asyncio.Future[Tally]) -> None:
    if not running.cancelled() and (error := running.exception()) is not None:
        logger.critical("The worker has ended by an error: %s", error)


def _first(group: BaseExceptionGroup[BaseException]) -> Exception:
    """The first single error of a group of groups."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, Exception)
    return error
