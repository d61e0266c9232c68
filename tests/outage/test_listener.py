"""The listener proves its session, comes back with one ring, and takes whatever is in a notification for a ring."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from millpond.clock import monotonic
from millpond.events import DatabaseLost
from millpond.store.channel import channel
from millpond.store.link import Link
from millpond.testing.proxy import Proxy
from millpond.worker.bell import Bell
from millpond.worker.listener import Listener
from tests.worker.support import Store, Witness, eventually

SILENCE = 0.3


@dataclass
class Listening:
    """A listener that runs, and what can be seen of it."""

    store: Store
    bell: Bell = field(default_factory=Bell)
    witness: Witness = field(default_factory=Witness)

    @contextlib.asynccontextmanager
    async def through(self, dsn: str) -> AsyncIterator[Link]:
        """Listen for the body, by this DSN; the first ring is waited for, and taken."""
        link = Link(dsn, role="listener", timeout=30.0)
        schema = self.store.database.schema
        listener = Listener(link, schema, [self.bell], observe=self.witness, silence=SILENCE)
        running = asyncio.ensure_future(listener.run())
        try:
            assert await self.rings()
            yield link
        finally:
            running.cancel()
            await asyncio.wait({running})

    async def rings(self) -> bool:
        return await self.bell.wait(30.0)

    async def is_quiet(self) -> bool:
        return not await self.bell.wait(0.05)

    def notify(self, payload: str = "", name: str | None = None) -> None:
        self.store.execute("SELECT pg_notify(%s, %s)", name or channel(self.store.database.schema), payload)

    def session(self) -> tuple[int, str] | None:
        """The server process of the session, and its state."""
        with self.store.database.connect() as connection:
            rows = connection.execute(
                "SELECT pid, state FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name = 'millpond listener'"
            ).fetchall()
        return rows[0] if rows else None

    def lost(self) -> list[str]:
        return [event.reason for event in self.witness.of(DatabaseLost)]


async def test_a_session_that_is_half_open_is_noticed_by_its_silence(store: Store, proxy: Proxy) -> None:
    listening = Listening(store)
    async with listening.through(proxy.dsn):
        proxy.half_open("millpond listener")
        begun = monotonic()
        assert await listening.rings()  # the new session's first
        assert monotonic() - begun < 20 * SILENCE  # twice the interval, and a machine that is busy
        assert len(listening.lost()) == 1
        assert await listening.is_quiet()
        listening.notify()
        assert await listening.rings()


async def test_a_session_that_is_not_subscribed_any_more_is_noticed(store: Store) -> None:
    listening = Listening(store)
    async with listening.through(store.database.dsn) as link:
        assert link._connection is not None
        await link._connection.execute("UNLISTEN *")  # as if another session had been put in the place of ours
        assert await listening.rings()
        assert len(listening.lost()) == 1
        listening.notify()
        assert await listening.rings()


async def test_a_session_that_is_ended_is_followed_by_another_with_one_ring(store: Store) -> None:
    listening = Listening(store)
    async with listening.through(store.database.dsn):
        for n in range(5):
            session = await eventually(listening.session)
            store.execute("SELECT pg_terminate_backend(%s)", session[0])
            assert await listening.rings()
            assert await listening.is_quiet()
            listening.notify()
            assert await listening.rings()
            assert len(listening.lost()) == n + 1


async def test_its_session_never_waits_in_a_transaction(store: Store) -> None:
    listening = Listening(store)
    async with listening.through(store.database.dsn):
        for _ in range(3):
            assert (await eventually(listening.session))[1] == "idle"
            listening.notify()
            assert await listening.rings()
        with store.database.connect() as connection:
            assert connection.execute("SELECT pg_notification_queue_usage()").fetchone() == (0.0,)


@pytest.mark.parametrize(
    "payload",
    ["{", "☃\t\n\u2028\x7f", "x" * 7_999, '{"sleep": 1e9}', "'; DROP SCHEMA millpond --", "%s%n$(reboot)"],
    ids=["half", "letters", "long", "json", "sql", "formats"],
)
async def test_whatever_is_in_a_notification_is_a_ring(store: Store, payload: str) -> None:
    listening = Listening(store)
    async with listening.through(store.database.dsn):
        listening.notify(payload)
        assert await listening.rings()
        listening.notify(payload, "another_channel")
        assert await listening.is_quiet()
    assert listening.lost() == []


async def test_a_flood_is_a_few_rings_and_keeps_nobody_from_anything(store: Store) -> None:
    listening = Listening(store)
    async with listening.through(store.database.dsn):
        with store.database.connect() as connection:
            connection.execute(
                "SELECT pg_notify(%s, n::text) FROM generate_series(1, 10000) AS n",
                (channel(store.database.schema),),
            )
        assert await listening.rings()
        await eventually(lambda: queue_is_empty(store))
    assert listening.lost() == []


def queue_is_empty(store: Store) -> bool:
    with store.database.connect() as connection:
        return connection.execute("SELECT pg_notification_queue_usage()").fetchone() == (0.0,)
