"""What becomes of a worker whose server stops, crashes, is full, may only read, or refuses a statement."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from millpond.events import DatabaseLost
from millpond.settings import DEFAULT_SCHEMA
from millpond.store.migrations import upgrade
from millpond.testing import serving
from millpond.testing.database import Database
from millpond.testing.server import EPHEMERAL, Server
from tests.outage.support import (
    Load,
    alter,
    assert_one_line_per_failure,
    end_sessions,
    said,
    waiting_for_a_lock,
    waiting_outcomes,
)
from tests.proof.oracle import Oracle, proven
from tests.worker.support import Store, eventually

# ── a server of one's own ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def server(pytestconfig: pytest.Config) -> Iterator[Server]:
    """A server that forgets nothing that it has confirmed, even when it crashes."""
    settings = {**EPHEMERAL, "synchronous_commit": "on"}
    made = serving.own_server(serving.chosen(pytestconfig.getoption("--millpond-server")), settings)
    if made is None:
        pytest.skip("needs a PostgreSQL of its own, not one that runs already")
    with made:
        yield made


@pytest.fixture
def own(server: Server) -> Iterator[Store]:
    """A store on a server that the test may stop."""
    database = Database(server.dsn(), DEFAULT_SCHEMA)
    upgrade(database.dsn, database.schema)
    with proven(database):
        yield Store(database)


async def test_restarts_amid_the_work(own: Store, server: Server, caplog: pytest.LogCaptureFixture) -> None:
    load = Load(own)
    async with load.worked_on(own.database.dsn):
        for _ in range(2):
            await asyncio.to_thread(server.restart, "immediate")
            await load.progress()
    assert_one_line_per_failure(load, caplog)


async def test_a_server_that_is_down_for_long(own: Store, server: Server, caplog: pytest.LogCaptureFixture) -> None:
    load = Load(own)
    async with load.worked_on(own.database.dsn) as worker:
        await asyncio.to_thread(server.stop, "immediate")
        await waiting_outcomes(worker)
        await eventually(lambda: any(event.delay > 0.5 for event in load.witness.of(DatabaseLost)))
        await asyncio.to_thread(server.start)
    assert_one_line_per_failure(load, caplog)


async def test_a_crash_of_one_session_ends_all(own: Store, caplog: pytest.LogCaptureFixture) -> None:
    """57P02 for those that were there, 57P03 for those that come while the server recovers."""
    load = Load(own)
    async with load.worked_on(own.database.dsn):
        with contextlib.suppress(psycopg.OperationalError), own.database.connect() as connection:
            os.kill(connection.info.backend_pid, signal.SIGKILL)
            connection.execute("SELECT 1")
        await eventually(lambda: load.witness.of(DatabaseLost))
    assert_one_line_per_failure(load, caplog)


# ── a server that says no ────────────────────────────────────────────────────────────────────────────────────────────


async def test_sessions_that_are_ended(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    load = Load(store)
    async with load.worked_on(store.database.dsn):
        for _ in range(4):
            end_sessions(store)
            await load.progress()
        assert said(load, "57P01")()
    assert_one_line_per_failure(load, caplog)


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_becomes_read_only(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    load = Load(store)
    async with load.worked_on(store.database.dsn) as worker:
        alter(store, "SET default_transaction_read_only = on")
        end_sessions(store)
        await eventually(said(load, "25006"))
        await waiting_outcomes(worker)
        alter(store, "RESET default_transaction_read_only")  # for new sessions: nobody may cling to the others
    assert_one_line_per_failure(load, caplog)


@pytest.fixture
def role(store: Store) -> Iterator[str]:
    """Somebody who is let in only as far as there is room, and may do no more than a worker has to."""
    name = f"{store.database.name}_worker"
    schema, role = sql.Identifier(store.database.schema), sql.Identifier(name)
    grants = sql.SQL(
        "CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role};"
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role};"
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}"
    )
    with store.database.connect() as connection:
        connection.execute(grants.format(role=role, schema=schema))
    yield name
    with store.database.connect() as connection:
        connection.execute(sql.SQL("DROP OWNED BY {role}; DROP ROLE {role}").format(role=role))


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_is_full(store: Store, role: str, caplog: pytest.LogCaptureFixture) -> None:
    load = Load(store)
    async with load.worked_on(make_conninfo(store.database.dsn, user=role)) as worker:
        alter(store, "CONNECTION LIMIT 0")
        end_sessions(store)
        await eventually(said(load, "too many connections"))
        await waiting_outcomes(worker)
        alter(store, "CONNECTION LIMIT -1")
    assert_one_line_per_failure(load, caplog)


@pytest.mark.usefixtures("impatient")
async def test_rights_that_are_taken_and_given_back(store: Store, role: str, caplog: pytest.LogCaptureFixture) -> None:
    load = Load(store)
    change = sql.SQL("{} UPDATE ON ALL TABLES IN SCHEMA {} {} {}")
    parts = sql.Identifier(store.database.schema), sql.Identifier(role)
    async with load.worked_on(make_conninfo(store.database.dsn, user=role)) as worker:
        with store.database.connect() as connection:
            connection.execute(change.format(sql.SQL("REVOKE"), parts[0], sql.SQL("FROM"), parts[1]))
        await eventually(said(load, "42501"))
        await waiting_outcomes(worker)
        with store.database.connect() as connection:
            connection.execute(change.format(sql.SQL("GRANT"), parts[0], sql.SQL("TO"), parts[1]))
    assert_one_line_per_failure(load, caplog)


@pytest.mark.usefixtures("impatient")
async def test_a_table_that_is_away_for_a_moment(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    load = Load(store)
    schema = sql.Identifier(store.database.schema)
    async with load.worked_on(store.database.dsn) as worker:
        with store.database.connect() as connection:
            connection.execute(sql.SQL("ALTER TABLE {}.jobs RENAME TO elsewhere").format(schema))
        await eventually(said(load, "42P01"))
        await waiting_outcomes(worker)
        with store.database.connect() as connection:
            connection.execute(sql.SQL("ALTER TABLE {}.elsewhere RENAME TO jobs").format(schema))
    assert_one_line_per_failure(load, caplog)


async def test_statements_that_somebody_cancels(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    load = Load(store)
    async with load.worked_on(store.database.dsn, statement_timeout=20.0):
        with store.database.connect() as connection:
            connection.execute(sql.SQL("LOCK TABLE {}.jobs").format(sql.Identifier(store.database.schema)))
            waiting = await eventually(lambda: waiting_for_a_lock(store))
            for pid in waiting:
                connection.execute("SELECT pg_cancel_backend(%s)", (pid,))
            await eventually(said(load, "57014"))
    assert_one_line_per_failure(load, caplog)


async def test_a_lock_that_is_not_to_be_had_in_time(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    alter(store, "SET lock_timeout = '50ms'")
    load = Load(store)
    async with load.worked_on(store.database.dsn):
        with store.database.connect(options="-c lock_timeout=0") as connection:
            connection.execute(sql.SQL("LOCK TABLE {}.jobs").format(sql.Identifier(store.database.schema)))
            await eventually(said(load, "55P03"))
    assert_one_line_per_failure(load, caplog)


async def test_a_deadlock_with_a_stranger(store: Store, oracle: Oracle, caplog: pytest.LogCaptureFixture) -> None:
    """The settler is the one that the server ends: it is the first that looks for deadlocks."""
    oracle.deadlocks += 1
    alter(store, "SET deadlock_timeout = '1s'")
    load = Load(store, jobs=100)
    lock = sql.SQL("SELECT id FROM {}.jobs WHERE id = ANY (%s) ORDER BY id FOR UPDATE").format(
        sql.Identifier(store.database.schema)
    )
    async with load.worked_on(store.database.dsn, statement_timeout=20.0, settle_interval=0.2):
        with store.database.connect(options="-c deadlock_timeout=60s") as stranger, store.database.connect() as another:
            running = [row["id"] for row in store.rows() if row["state"] == "running"]
            stranger.execute(lock, (running[-1:],))
            await eventually(lambda: waiting_for_a_lock(store))
            free = {job_id for (job_id,) in another.execute(lock + sql.SQL(" SKIP LOCKED"), (running,))}
            another.rollback()
            stranger.execute(lock, ([job_id for job_id in running if job_id not in free],))
            await eventually(said(load, "40P01"))
    assert_one_line_per_failure(load, caplog)
