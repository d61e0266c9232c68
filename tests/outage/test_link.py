"""One connection of ours: its deadlines, its end, its return, and that nothing stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from millpond.clock import monotonic
from millpond.errors import AnswerLost, DatabaseUnreachable
from millpond.store.link import Connection, Link
from millpond.testing.proxy import Proxy, Way
from tests.worker.support import LONG, Store, eventually

SOON = 5.0
"""Seconds: everything here takes less, and the driver alone more; it waits ten for a server that is gone."""


@contextlib.asynccontextmanager
async def link(dsn: str, *, timeout: float = LONG) -> AsyncIterator[Link]:
    async with Link(dsn, role="test", timeout=timeout) as made:
        yield made


async def ask(link: Link, query: str = "SELECT 1", *params: Any) -> Any:
    """The first value of the answer to a query."""

    async def body(connection: Connection) -> Any:
        row = await (await connection.execute(query, params)).fetchone()
        return row and row[0]

    return await link.talk(body)


async def pid(link: Link) -> int:
    return int(await ask(link, "SELECT pg_backend_pid()"))


def backends(store: Store, condition: str = "true") -> int:
    """Sessions of the links here, as the server sees them."""
    with store.database.connect() as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            f" AND application_name = 'millpond test' AND {condition}"
        ).fetchone()
    assert row is not None
    return int(row[0])


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


# ── deadlines ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ways", [("server",), ("client",), ("server", "client")], ids=" and ".join)
async def test_a_black_hole_ends_at_the_deadline_and_the_link_comes_back(proxy: Proxy, ways: tuple[Way, ...]) -> None:
    async with link(proxy.dsn, timeout=0.3) as held:
        first = await pid(held)
        proxy.block(*ways)
        async with asyncio.timeout(SOON):
            with pytest.raises(AnswerLost, match=r"no answer within 0\.3 s"):
                await ask(held)
        proxy.heal()
        assert await pid(held) != first


async def test_a_statement_too_large_for_the_wire_s_buffers_has_the_same_deadline(proxy: Proxy) -> None:
    async with link(proxy.dsn, timeout=0.5) as held:
        await ask(held)
        proxy.block("server")
        async with asyncio.timeout(SOON):
            with pytest.raises(AnswerLost):
                await ask(held, "SELECT length(%s)", "x" * 30_000_000)


async def test_an_answer_that_trickles_in_too_slowly_ends_at_the_deadline(proxy: Proxy) -> None:
    async with link(proxy.dsn, timeout=0.5) as held:
        await ask(held)
        proxy.slow(delay=0.01, chunk=10)
        async with asyncio.timeout(SOON):
            with pytest.raises(AnswerLost):
                await ask(held, "SELECT repeat('x', 100000)")
        proxy.slow(delay=0.001, chunk=100)
        assert len(await ask(held, "SELECT repeat('x', 1000)")) == 1_000


async def test_connecting_has_the_same_deadline_and_no_answer_to_lose(proxy: Proxy) -> None:
    proxy.block()
    async with link(proxy.dsn, timeout=0.3) as held, asyncio.timeout(SOON):
        with pytest.raises(DatabaseUnreachable) as raised:
            await ask(held)
    assert not isinstance(raised.value, AnswerLost)


async def test_the_server_gives_up_first_and_the_session_stays(store: Store) -> None:
    async with link(store.database.dsn, timeout=0.5) as held:
        first = await pid(held)
        with pytest.raises(psycopg.errors.QueryCanceled):
            await ask(held, "SELECT pg_sleep(60)")
        assert await pid(held) == first


async def test_a_call_that_is_under_way_can_be_hurried(proxy: Proxy) -> None:
    async with link(proxy.dsn) as held:
        await ask(held)
        proxy.block()
        call = asyncio.ensure_future(ask(held))
        await asyncio.sleep(0)
        held.hurry(0.2)
        async with asyncio.timeout(SOON):
            with pytest.raises(AnswerLost):
                await call
            with pytest.raises(DatabaseUnreachable):
                await ask(held)


# ── cancellation ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_cancelling_waits_for_nobody(proxy: Proxy) -> None:
    async with link(proxy.dsn) as held:
        await ask(held)
        proxy.block()
        call = asyncio.ensure_future(ask(held))
        await asyncio.sleep(0)
        call.cancel()
        async with asyncio.timeout(SOON):
            await asyncio.wait({call})
        assert call.cancelled()


async def test_what_is_cancelled_ends_on_the_server_too(store: Store) -> None:
    async with link(store.database.dsn) as held:
        call = asyncio.ensure_future(ask(held, "SELECT pg_sleep(60)"))
        await eventually(lambda: backends(store, "state = 'active'"))
        call.cancel()
        await asyncio.wait({call})
        await eventually(lambda: not backends(store))


@pytest.mark.parametrize("times", [300, pytest.param(10_000, marks=pytest.mark.storm)])
async def test_cancelling_at_any_moment_leaves_one_connection_and_no_file(store: Store, times: int) -> None:
    async with link(store.database.dsn) as held:
        await ask(held)
        before = open_files()
        for _ in range(times):
            call = asyncio.ensure_future(ask(held, "SELECT pg_sleep(0.002)"))
            await asyncio.sleep(random.uniform(0, 0.006))
            call.cancel()
            await asyncio.wait({call})
        assert await ask(held, "SELECT 7") == 7
        await eventually(lambda: backends(store) == 1)
        assert open_files() <= before


# ── what is left ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def failing(held: Link, times: int) -> None:
    for _ in range(times):
        with pytest.raises(DatabaseUnreachable):
            await ask(held, "SELECT pg_terminate_backend(pg_backend_pid())")


async def test_a_thousand_failed_reconnections_leave_nothing(store: Store, proxy: Proxy) -> None:
    async with link(proxy.dsn, timeout=0.05) as slow, link(proxy.dsn) as held:
        await failing(held, 1)
        files, threads, tasks = open_files(), threading.active_count(), len(asyncio.all_tasks())
        await failing(held, 100)  # the server ends the session
        proxy.refuse()
        await failing(held, 880)  # nobody is there
        proxy.heal()
        proxy.block()
        await failing(slow, 20)  # somebody is there, and says nothing
        proxy.heal()
        proxy.cut()
        await eventually(lambda: not proxy.connections())
        assert (threading.active_count(), len(asyncio.all_tasks())) == (threads, tasks)
        assert open_files() <= files
        await eventually(lambda: backends(store) == 0)
        assert await ask(held, "SELECT 7") == 7


async def test_a_link_has_one_user_at_a_time(store: Store) -> None:
    async with link(store.database.dsn) as held:
        call = asyncio.ensure_future(ask(held, "SELECT pg_sleep(0.1)"))
        await asyncio.sleep(0)
        with pytest.raises(AssertionError, match="one task at a time"):
            await ask(held)
        await call


# ── transactions ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def note(held: Link, n: int) -> None:
    await ask(held, "INSERT INTO notes VALUES (%s) RETURNING n", n)


async def notes(held: Link) -> list[int] | None:
    found: list[int] | None = await ask(held, "SELECT array_agg(n ORDER BY n) FROM notes")
    return found


async def test_a_transaction_commits_or_is_undone(store: Store) -> None:
    store.execute("CREATE TABLE notes (n integer)")

    async def undone_by_an_error(held: Link) -> None:
        async with held.transaction() as inside:
            await note(inside, 2)
            await ask(inside, "SELECT 1 / 0")

    async def undone_by_the_body(held: Link) -> None:
        async with held.transaction() as inside:
            await note(inside, 3)
            raise RuntimeError

    async with link(store.database.dsn) as held:
        async with held.transaction() as inside:
            await note(inside, 1)
        with pytest.raises(psycopg.errors.DivisionByZero):
            await undone_by_an_error(held)
        with pytest.raises(RuntimeError):
            await undone_by_the_body(held)
        assert await notes(held) == [1]
        assert not backends(store, "state LIKE 'idle in transaction%'")


async def test_a_transaction_that_lost_its_connection_does_not_go_on_outside_of_one(store: Store, proxy: Proxy) -> None:
    store.execute("CREATE TABLE notes (n integer)")

    async def stubborn(held: Link) -> None:
        async with held.transaction() as inside:
            for n in range(3):
                with contextlib.suppress(AnswerLost):
                    await note(inside, n)
                proxy.cut()
                await eventually(lambda: not proxy.connections())

    async with link(proxy.dsn) as held:
        with pytest.raises(DatabaseUnreachable):
            await stubborn(held)
        assert await notes(held) is None


async def test_a_transaction_that_waits_for_us_too_long_is_ended_by_the_server(store: Store) -> None:
    async with link(store.database.dsn) as held:
        assert await ask(held, "SHOW idle_in_transaction_session_timeout") == "5s"
        assert await ask(held, "SHOW statement_timeout") == "27s"
        assert await ask(held, "SHOW default_transaction_isolation") == "read committed"


# ── servers that are not what they were ──────────────────────────────────────────────────────────────────────────────


async def test_a_session_that_may_only_read_is_not_used_again(store: Store) -> None:
    store.execute("CREATE TABLE notes (n integer)")
    name = store.database.name
    async with link(store.database.dsn) as held:
        store.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        with pytest.raises(AnswerLost, match="25006"):
            await ask(held, "INSERT INTO notes VALUES (1) RETURNING n")
        with store.database.connect(options="-c default_transaction_read_only=off") as connection:
            connection.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        assert await ask(held, "INSERT INTO notes VALUES (1) RETURNING n") == 1


async def test_the_encoding_is_ours_whatever_the_environment_says(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    async with link(store.database.dsn) as held:
        assert await ask(held, "SHOW client_encoding") == "UTF8"


# ── names that nobody looks up ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def silent_resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A resolver that does not answer, as without a network. Yields what it was asked for."""
    answer, asked, look_up = threading.Event(), list[str](), socket.getaddrinfo

    def silent(host: Any, *arguments: Any, **options: Any) -> Any:
        if host == "database.example":
            asked.append(host)
            answer.wait(LONG)
            raise socket.gaierror("nobody answered")
        return look_up(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    yield asked
    answer.set()


def test_a_name_that_is_not_looked_up_holds_nothing_up(silent_resolver: list[str]) -> None:
    async def work() -> None:
        async with link("host=database.example dbname=x", timeout=0.1) as held:
            for _ in range(3):
                with pytest.raises(DatabaseUnreachable):
                    await ask(held)

    begun = monotonic()
    asyncio.run(work())  # waits for the loop's own threads, too
    assert monotonic() - begun < SOON
    assert len(silent_resolver) == 1  # one at a time


async def test_a_name_that_does_not_exist_is_said_to_be_the_matter() -> None:
    async with link("host=database.invalid dbname=x") as held:
        with pytest.raises(DatabaseUnreachable, match=r"database\.invalid"):
            await ask(held)
