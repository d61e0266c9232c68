"""Says that the worker lives, from a thread and a connection of its own, and notices when it no longer may.

A job that blocks the event loop does not silence the worker; only the death, or the freeze, of the process does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable

import psycopg

from millpond.clock import monotonic
from millpond.settings import WorkerSettings
from millpond.store import workers
from millpond.store.connections import run
from millpond.store.link import conninfo
from millpond.worker.registration import Registration

logger = logging.getLogger(__name__)

_THREAD_GOODBYE = 2.0
"""Seconds that the thread has to end; it may hang in a call to a database that is gone. It is a daemon."""


class LeaseOver(Exception):
    """This registration may hold nothing any more: others may take its rows, or have."""


class Lease:
    """The service that keeps a registration alive. Its `run` ends in LeaseOver, or never."""

    def __init__(
        self, dsn: str, registration: Registration, settings: WorkerSettings, *, on_over: Callable[[str], None]
    ) -> None:
        """`on_over` is called on the event loop with the reason, before LeaseOver is raised: to drop what runs."""
        self._conninfo = conninfo(dsn, role="lease")
        self._registration = registration
        self._settings = settings
        self._on_over = on_over
        self._last_beat = monotonic()
        self._buried = False
        self._stopping = threading.Event()
        self._changed = asyncio.Event()

    @property
    def beat_age(self) -> float:
        """Seconds since the database last acknowledged a beat."""
        return monotonic() - self._last_beat

    async def run(self) -> None:
        """Beat, and watch the beats."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def tell(event: asyncio.Event) -> None:
            with contextlib.suppress(RuntimeError):  # the loop may be closed by the time a hanging call comes back
                loop.call_soon_threadsafe(event.set)

        thread = threading.Thread(
            target=self._beat_until_stopped, args=(tell, ended), name="millpond-lease", daemon=True
        )
        thread.start()
        try:
            raise LeaseOver(await self._over())
        finally:
            self._stopping.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_THREAD_GOODBYE):
                    await ended.wait()

    async def _over(self) -> str:
        """Wait until the lease is over; say why."""
        margin = self._settings.beat_interval
        while True:
            if self._buried:
                reason = "its row was taken away"
            elif self.beat_age > self._settings.stale_timeout - margin:
                reason = f"no beat was acknowledged for {self.beat_age:.1f} s"
            else:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(margin / 2):
                        await self._changed.wait()
                continue
            self._on_over(reason)
            return f"Worker {self._registration.worker_id} lost its lease: {reason}."

    def _beat_until_stopped(self, tell: Callable[[asyncio.Event], None], ended: asyncio.Event) -> None:
        connection: psycopg.Connection | None = None
        while not self._stopping.wait(self._settings.beat_interval if self._last_beat_is_fresh() else 0.5):
            sent_at = monotonic()
            try:
                if connection is None:
                    connection = psycopg.connect(self._conninfo, autocommit=True)
                alive = run(
                    connection,
                    workers.beat(
                        self._settings.schema, self._registration.worker_id, lease=self._settings.stale_timeout
                    ),
                )
            except (psycopg.Error, OSError) as error:
                logger.warning("A beat failed: %s", str(error).strip())
                connection = _closed(connection)
                continue
            if not alive:
                self._buried = True
                tell(self._changed)
                break
            self._last_beat = sent_at  # not when the answer came: the lease runs from when the database heard it
        _closed(connection)
        tell(ended)

    def _last_beat_is_fresh(self) -> bool:
        return self.beat_age < 1.5 * self._settings.beat_interval


def _closed(connection: psycopg.Connection | None) -> None:
    if connection is not None:
        with contextlib.suppress(psycopg.Error):
            connection.close()
