"""What the caller has set up on its connection neither matters nor changes."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg.rows import class_row, dict_row, namedtuple_row, scalar_row, tuple_row
from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from millpond.client import AsyncClient, Client
from millpond.testing.database import Database

from .conftest import Onlooker
from .ways import django_connection


class Anything:
    """What class_row makes rows of."""

    def __init__(self, **columns: Any) -> None: ...


ROW_FACTORIES = [tuple_row, dict_row, namedtuple_row, scalar_row, class_row(Anything)]


@pytest.mark.parametrize("row_factory", ROW_FACTORIES)
@pytest.mark.parametrize("cursor_factory", [psycopg.Cursor, psycopg.ClientCursor, psycopg.RawCursor])
def test_psycopg_factories(
    database: Database, client: Client, onlooker: Onlooker, row_factory: Any, cursor_factory: Any
) -> None:
    with database.connect(row_factory=row_factory, cursor_factory=cursor_factory) as conn:
        conn.server_cursor_factory = psycopg.ServerCursor
        before = (conn.row_factory, conn.cursor_factory, conn.server_cursor_factory)
        job_id = client.enqueue(conn, {}, tenant="t", executor="work")
        assert (conn.row_factory, conn.cursor_factory, conn.server_cursor_factory) == before
    assert [job["id"] for job in onlooker.jobs()] == [job_id]


@pytest.mark.parametrize("isolation", list(psycopg.IsolationLevel))
def test_psycopg_isolation_levels(
    database: Database, client: Client, onlooker: Onlooker, isolation: psycopg.IsolationLevel
) -> None:
    with database.connect() as conn:
        conn.isolation_level = isolation
        client.enqueue(conn, {}, tenant="t", executor="work")
        assert conn.isolation_level is isolation
    assert len(onlooker.jobs()) == 1


@pytest.mark.parametrize("threshold", [None, 0, 5])
def test_psycopg_prepared_or_not(database: Database, client: Client, onlooker: Onlooker, threshold: int | None) -> None:
    with database.connect(prepare_threshold=threshold) as conn:
        ids = [client.enqueue(conn, {}, tenant="t", executor="work") for _ in range(8)]
        assert conn.prepare_threshold == threshold
    assert [job["id"] for job in onlooker.jobs()] == ids


def test_psycopg_in_autocommit_stores_at_once(database: Database, client: Client, onlooker: Onlooker) -> None:
    with contextlib.closing(database.connect(autocommit=True)) as conn:
        client.enqueue(conn, {}, tenant="t", executor="work")
        assert len(onlooker.jobs()) == 1
        assert onlooker.wake_ups() == [""]
        with conn.transaction(force_rollback=True):
            client.enqueue(conn, {}, tenant="t", executor="work")
        assert conn.autocommit
    assert len(onlooker.jobs()) == 1
    assert onlooker.wake_ups() == []


def test_psycopg_in_pipeline_mode(database: Database, client: Client, onlooker: Onlooker) -> None:
    with database.connect() as conn, conn.pipeline():
        conn.execute("CREATE TABLE orders (id int)")
        ids = [client.enqueue(conn, {"n": n}, tenant="t", executor="work") for n in range(3)]
        conn.execute("INSERT INTO orders VALUES (1)")
    assert [job["id"] for job in onlooker.jobs()] == ids


async def test_psycopg_async_in_pipeline_mode(database: Database, client: Client, onlooker: Onlooker) -> None:
    async with await database.connect_async(row_factory=dict_row) as conn, conn.pipeline():
        twin = AsyncClient(schema=client.schema)
        ids = [await twin.enqueue(conn, {"n": n}, tenant="t", executor="work") for n in range(3)]
    assert [job["id"] for job in onlooker.jobs()] == ids


def test_psycopg_adapters(database: Database, client: Client, onlooker: Onlooker) -> None:
    class ShoutingLoader(psycopg.adapt.Loader):
        def load(self, data: Any) -> str:
            return f"{bytes(data).decode()}"

    with database.connect() as conn:
        psycopg.types.json.set_json_dumps(lambda value: "{}", conn)
        psycopg.types.json.set_json_loads(lambda data: None, conn)
        conn.adapters.register_loader("int8", ShoutingLoader)
        job_id = client.enqueue(conn, {"n": 1}, tenant="t", executor="work")
    assert isinstance(job_id, int)
    assert [(job["id"], job["args"]) for job in onlooker.jobs()] == [(job_id, {"n": 1})]


@pytest.mark.parametrize("path", ["''", "evil, pg_catalog"])
def test_a_hostile_search_path(database: Database, client: Client, onlooker: Onlooker, path: str) -> None:
    with database.connect() as conn:
        conn.execute("CREATE SCHEMA evil")
        conn.execute("CREATE TABLE evil.jobs (id int)")
        for function in (
            "now() RETURNS timestamptz",
            "pg_notify(text, text) RETURNS void",
            "make_interval(secs float8) RETURNS interval",
            "jsonb_to_recordset(jsonb) RETURNS SETOF record",
        ):
            conn.execute(f"CREATE FUNCTION evil.{function} LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''evil''; END'")
        conn.execute(f"SET search_path = {path}")
        client.enqueue(conn, {}, tenant="t", executor="work", delay=5)
        assert conn.execute("SHOW search_path").fetchone() == (path.replace("''", '""'),)
    assert len(onlooker.jobs()) == 1
    assert onlooker.wake_ups() == [""]


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_sqlalchemy_execution_options(database: Database, client: Client, onlooker: Onlooker, driver: str) -> None:
    options: dict[str, Any] = {
        "stream_results": True,
        "yield_per": 10,
        "isolation_level": "SERIALIZABLE",
        "schema_translate_map": {None: "evil"},
    }
    engine = create_engine(database.url(driver), poolclass=NullPool, execution_options=options)
    with engine.begin() as conn:
        ids = client.enqueue_many(conn, [client.job({}, tenant="t", executor="work") for _ in range(20)])
        assert conn.get_execution_options() == conn.get_execution_options() | options
    assert [job["id"] for job in onlooker.jobs()] == ids


def test_sqlalchemy_in_autocommit(database: Database, client: Client, onlooker: Onlooker) -> None:
    engine = create_engine(database.url("psycopg"), poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with engine.connect() as conn:
        client.enqueue(conn, {}, tenant="t", executor="work")
        assert len(onlooker.jobs()) == 1


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
async def test_sqlalchemy_async_execution_options(
    database: Database, client: Client, onlooker: Onlooker, driver: str
) -> None:
    options: dict[str, Any] = {"stream_results": True, "yield_per": 10, "isolation_level": "SERIALIZABLE"}
    engine = create_async_engine(database.url(driver), poolclass=NullPool, execution_options=options)
    async with engine.begin() as conn:
        twin = AsyncClient(schema=client.schema)
        ids = await twin.enqueue_many(conn, [twin.job({}, tenant="t", executor="work") for _ in range(20)])
    assert [job["id"] for job in onlooker.jobs()] == ids


async def test_asyncpg_codecs_and_no_prepared_statements(
    database: Database, client: Client, onlooker: Onlooker
) -> None:
    class Rows(asyncpg.Record):  # type: ignore[misc]
        """What this application makes of rows."""

    conn = await asyncpg.connect(database.url(), statement_cache_size=0, record_class=Rows)
    try:
        for name in ("json", "jsonb"):
            await conn.set_type_codec(name, schema="pg_catalog", encoder=json.dumps, decoder=json.loads)
        async with conn.transaction(isolation="serializable"):
            job_id = await AsyncClient(schema=client.schema).enqueue(conn, {"n": 1}, tenant="t", executor="work")
    finally:
        await conn.close()
    assert [(job["id"], job["args"]) for job in onlooker.jobs()] == [(job_id, {"n": 1})]


def test_django_debug_cursor_and_atomic_blocks(database: Database, client: Client, onlooker: Onlooker) -> None:
    with django_connection(database) as connection:
        from django.db import connections, transaction  # needs settings

        connection.force_debug_cursor = True
        with transaction.atomic():
            outer = client.enqueue(connection, {}, tenant="outer", executor="work")
            with contextlib.suppress(ZeroDivisionError), transaction.atomic():
                client.enqueue(connection, {}, tenant="inner", executor="work")
                raise ZeroDivisionError
            same = client.enqueue(connections["default"], {}, tenant="same", executor="work")
        assert any("INSERT INTO" in query["sql"] for query in connection.queries)
        with contextlib.suppress(ZeroDivisionError), transaction.atomic():
            client.enqueue(connection, {}, tenant="gone", executor="work")
            raise ZeroDivisionError
        own = client.enqueue(connection, {}, tenant="own", executor="work")  # outside of any block: at once
        assert connection.get_autocommit()
    assert [job["id"] for job in onlooker.jobs()] == [outer, same, own]
    assert onlooker.wake_ups() == ["", ""]
