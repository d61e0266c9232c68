"""Says that the worker lives, from a thread, a loop and a connection of its own, and notices when it no longer may.

A job that blocks the worker's event loop does not silence it; only the death, or the freeze, of the process does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any
from uuid import UUID

import psycopg

from millpond.clock import monotonic
from millpond.errors import DatabaseUnreachable
from millpond.events import Observe
from millpond.settings import WorkerSettings
from millpond.store import workers
from millpond.store.link import Link
from millpond.worker.patience import Patience
from millpond.worker.registration import Registration

logger = logging.getLogger(__name__)

_TRIES_PER_LEASE = 4
"""A beat that gets no answer is given up while there is still time for others, on other connections."""

_THREAD_GOODBYE = 2.0
"""Seconds that the thread has to end. It is a daemon: nothing waits longer for it."""


class LeaseOver(Exception):
    """This registration may hold nothing any more: others may take its rows, or have."""

    def __init__(self, worker_id: UUID, reason: str, *, silent: bool) -> None:
        """`silent`: for want of answers, which others may be wanting, too."""
        super().__init__(f"Worker {worker_id} lost its lease: {reason}.")
        self.silent = silent


class Lease:
    """The service that keeps a registration alive. Its `run` ends in LeaseOver, or never."""

    def __init__(
        self,
        dsn: str,
        registration: Registration,
        settings: WorkerSettings,
        *,
        on_over: Callable[[str], None],
        observe: Observe,
    ) -> None:
        """`on_over` is called on the event loop with the reason, before LeaseOver is raised: to drop what runs.

        `observe` is told of failures, in the lease's own thread.
        """
        self._link = Link(
            dsn, role="lease", timeout=min(settings.statement_timeout, settings.stale_timeout / _TRIES_PER_LEASE)
        )
        self._registration = registration
        self._settings = settings
        self._on_over = on_over
        self._patience = Patience("lease", observe, longest_wait=settings.beat_interval)
        self._last_beat = monotonic()
        self._buried = False
        self._ended = asyncio.Event()
        """Set when there will be no more beats."""

    @property
    def beat_age(self) -> float:
        """Seconds since the database last acknowledged a beat."""
        return monotonic() - self._last_beat

    async def run(self) -> None:
        """Beat, and watch the beats."""
        async with _in_thread(self._beat(), ended=self._ended):
            raise await self._over()

    async def _over(self) -> LeaseOver:
        """Wait until the lease is over; say why."""
        margin = self._settings.beat_interval
        while True:
            if self._buried:
                reason = "its row was taken away"
            elif self._ended.is_set():
                reason = "its thread has failed"
            elif self.beat_age > self._settings.stale_timeout - margin:
                reason = f"no beat was acknowledged for {self.beat_age:.1f} s"
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(margin / 2):
                        await self._ended.wait()
                continue
            self._on_over(reason)
            return LeaseOver(self._registration.worker_id, reason, silent=not self._buried)

    async def _beat(self) -> None:
        """Beat until the row is gone."""
        beat = workers.beat(self._settings.schema, self._registration.worker_id, lease=self._settings.stale_timeout)
        async with self._link as link:
            while not self._buried:
                sent_at = monotonic()
                try:
                    self._buried = not await link.run(beat)
                except (DatabaseUnreachable, psycopg.Error) as error:
                    await self._patience.failed(error)
                else:
                    self._patience.succeeded()
                    self._last_beat = sent_at  # not when the answer came: the lease runs from when it was heard
                    await asyncio.sleep(self._settings.beat_interval)


@contextlib.asynccontextmanager
async def _in_thread(work: Coroutine[Any, Any, None], *, ended: asyncio.Event) -> AsyncIterator[None]:
    """Run the work in a thread and on an event loop of its own, beside the body; cancel it after the body."""
    here, there = asyncio.get_running_loop(), asyncio.new_event_loop()
    task = there.create_task(work)

    def run() -> None:
        try:
            there.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        except Exception:
            logger.exception("The lease's thread has failed; the lease will run out.")
        finally:
            there.close()
            with contextlib.suppress(RuntimeError):  # this loop may be closed before a thread that hung comes back
                here.call_soon_threadsafe(ended.set)

    threading.Thread(target=run, name="millpond-lease", daemon=True).start()
    try:
        yield
    finally:
        with contextlib.suppress(RuntimeError):  # its loop is closed: it has ended already
            there.call_soon_threadsafe(task.cancel)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_THREAD_GOODBYE):
                await ended.wait()
