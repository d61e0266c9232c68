"""A PgBouncer in transaction mode: each transaction gets any session, and nothing may be left in one."""

from __future__ import annotations

import contextlib

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import create_engine

from millpond import Client
from millpond.store.link import Link
from tests.outage import bouncer
from tests.outage.support import (
    Load,
    alter,
    assert_one_line_per_failure,
    complaints,
    said,
    waiting_for_a_lock,
)
from tests.worker.support import Store, eventually


async def test_a_link_knows_whose_session_it_has(store: Store, pooled: str) -> None:
    async with Link(pooled, role="test", timeout=30.0) as link:
        assert await link.through_pooler()
    async with Link(store.database.dsn, role="test", timeout=30.0) as link:
        assert not await link.through_pooler()


def test_jobs_are_enqueued_through_it(store: Store, pooled: str) -> None:
    client = Client()
    with psycopg.connect(pooled, prepare_threshold=None) as connection:
        for n in range(20):
            client.enqueue(connection, {"n": n}, tenant="t", executor="work")
            connection.commit()
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(pooled, prepare_threshold=None))
    with engine.begin() as wrapped:
        client.enqueue_many(wrapped, (client.job({"n": n}, tenant="t", executor="work") for n in range(5_000)))
    engine.dispose()
    assert store.states() == {"available": 5_020}


async def test_nothing_is_left_in_its_sessions(store: Store, pooled: str, caplog: pytest.LogCaptureFixture) -> None:
    load = Load(store)
    async with load.worked_on(pooled, listen_dsn=store.database.dsn, statement_timeout=20.0):
        pass
    left = sessions_behind(pooled)
    assert len({pid for pid, *_ in left}) == bouncer.POOL
    assert all(state == ["0", "0", "0", 0, 0, 0, 0] for _, *state in left), left
    assert complaints(caplog) == []


async def test_a_worker_that_cannot_listen_says_so_and_polls(
    store: Store, pooled: str, caplog: pytest.LogCaptureFixture
) -> None:
    load = Load(store)
    async with load.worked_on(pooled, poll_interval=0.05, statement_timeout=20.0):
        pass
    assert len(complaints(caplog)) == 1
    assert "set listen_dsn" in complaints(caplog)[0]
    assert all(channels == 0 for *_, channels in sessions_behind(pooled))


async def test_sessions_behind_it_that_are_ended(store: Store, pooled: str, caplog: pytest.LogCaptureFixture) -> None:
    load = Load(store)
    async with load.worked_on(pooled, listen=False, poll_interval=0.05):
        for _ in range(3):
            end_sessions_behind(store, pooled)
            await load.progress()
    assert_one_line_per_failure(load, caplog)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_transactions_that_are_stricter_than_ours(
    store: Store, pooled: str, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    """40001, which sessions of our own do not meet: they ask for the isolation that they need."""
    alter(store, f"SET default_transaction_isolation = '{level}'")
    end_sessions_behind(store, pooled)
    touch = sql.SQL("UPDATE {}.jobs SET priority = priority WHERE state = 'running'").format(
        sql.Identifier(store.database.schema)
    )
    load = Load(store)
    async with load.worked_on(pooled, listen=False, poll_interval=0.05, statement_timeout=20.0):
        with store.database.connect(options="-c default_transaction_isolation=read\\ committed") as connection:
            connection.execute(touch)
            await eventually(lambda: waiting_for_a_lock(store))
        await eventually(said(load, "40001"))
    assert_one_line_per_failure(load, caplog)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_sessions_of_our_own_ask_for_the_isolation_that_they_need(
    store: Store, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    alter(store, f"SET default_transaction_isolation = '{level}'")
    load = Load(store)
    async with load.worked_on(store.database.dsn, statement_timeout=20.0):
        pass
    assert complaints(caplog) == []


def sessions_behind(pooled: str) -> list[tuple[object, ...]]:
    """What is in each of PgBouncer's sessions: its process, settings, and how many things that do not belong there."""
    look = """
        SELECT pg_backend_pid(),
            current_setting('statement_timeout'), current_setting('idle_in_transaction_session_timeout'),
            current_setting('client_connection_check_interval'),
            (SELECT count(*) FROM pg_prepared_statements),
            (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
            (SELECT count(*) FROM pg_class WHERE relpersistence = 't'),
            (SELECT count(*) FROM pg_listening_channels())
    """
    with contextlib.ExitStack() as stack:  # each holds its transaction, and so a session, until all have looked
        rows = []
        for _ in range(bouncer.POOL):
            connection = stack.enter_context(psycopg.connect(pooled, prepare_threshold=None))
            rows += connection.execute(look).fetchall()
        return rows


def end_sessions_behind(store: Store, pooled: str) -> None:
    for pid, *_ in sessions_behind(pooled):
        store.execute("SELECT pg_terminate_backend(%s)", pid)
