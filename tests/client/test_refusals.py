"""What is not a connection that we can write through is refused before anything is sent, with what to pass instead."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from millpond.client import AsyncClient, Client
from millpond.errors import SchemaMismatch, UnsupportedConnection
from millpond.testing.database import Database

from .ways import Way, django_connection

NOWHERE = "postgresql+psycopg://nobody@/nowhere"

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "nothing": (lambda: None, "not a connection"),
    "a DSN": (lambda: "postgresql://localhost", "not a connection"),
    "an engine": (lambda: create_engine(NOWHERE), r"engine\.begin\(\)"),
    "an async engine": (lambda: create_async_engine(NOWHERE), r"async with engine\.begin\(\)"),
    "a sessionmaker": (lambda: sessionmaker(create_engine(NOWHERE)), r"with maker\.begin\(\)"),
    "an async_sessionmaker": (lambda: async_sessionmaker(create_async_engine(NOWHERE)), r"async with maker\.begin\(\)"),
    "a pool": (lambda: ConnectionPool("", open=False), r"with pool\.connection\(\)"),
    "sqlite3's": (lambda: SimpleNamespace(cursor=sqlite3.Cursor), "not a connection"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_no_connection_is_refused_with_the_remedy(name: str) -> None:
    make, remedy = REFUSED[name]
    given: Any = make()
    shown = rf"this {type(given).__module__}\.{type(given).__qualname__}: .*{remedy}.*Accepted are"
    with pytest.raises(UnsupportedConnection, match=shown):
        Client().enqueue(given, {}, tenant="t", executor="work")
    with pytest.raises(UnsupportedConnection, match=shown):
        await AsyncClient().enqueue(given, {}, tenant="t", executor="work")


async def test_asynchronous_pools_are_refused_with_the_remedy() -> None:
    pool: Any = AsyncConnectionPool("", open=False)
    with pytest.raises(UnsupportedConnection, match=r"async with pool\.connection\(\)"):
        await AsyncClient().enqueue(pool, {}, tenant="t", executor="work")
    pool = asyncpg.create_pool(min_size=0)
    with pytest.raises(UnsupportedConnection, match=r"async with pool\.acquire\(\)"):
        await AsyncClient().enqueue(pool, {}, tenant="t", executor="work")


def test_sqlalchemy_on_another_database_is_refused() -> None:
    engine = create_engine("sqlite://")
    try:
        with engine.connect() as conn, pytest.raises(UnsupportedConnection, match=r"sqlite\+pysqlite"):
            Client().enqueue(conn, {}, tenant="t", executor="work")
        with Session(engine) as session, pytest.raises(UnsupportedConnection, match=r"sqlite\+pysqlite"):
            Client().enqueue(session, {}, tenant="t", executor="work")
    finally:
        engine.dispose()


def test_django_on_another_database_is_refused(database: Database) -> None:
    with django_connection(database):
        from django.db.utils import ConnectionHandler  # needs settings

        handler = ConnectionHandler({"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
        with pytest.raises(UnsupportedConnection, match="not PostgreSQL"):
            Client().enqueue(handler["default"], {}, tenant="t", executor="work")


def test_a_cursor_is_refused(database: Database, client: Client) -> None:
    with database.connect() as conn:
        cursor: Any = conn.cursor()
        with pytest.raises(UnsupportedConnection, match="pass its connection"):
            client.enqueue(cursor, {}, tenant="t", executor="work")


def test_the_other_kind_of_client_is_named(way: Way) -> None:
    """Each connection is refused by the client that cannot wait for it, or cannot but wait."""
    wrong: Any = AsyncClient() if isinstance(way.client, Client) else Client()
    remedy = "use Client" if isinstance(way.client, Client) else "use AsyncClient"
    with pytest.raises(UnsupportedConnection, match=remedy):
        _outcome(wrong.enqueue(way.conn, {}, tenant="t", executor="work"))


def _outcome(awaited: Any) -> None:
    """Run a coroutine that ends without waiting."""
    try:
        awaited.send(None)
    finally:
        awaited.close()


def test_a_closed_connection_is_refused(database: Database, client: Client) -> None:
    conn = database.connect()
    conn.close()
    with pytest.raises(UnsupportedConnection, match="closed"):
        client.enqueue(conn, {}, tenant="t", executor="work")
    engine = create_engine(database.url("psycopg"), poolclass=NullPool)
    connection = engine.connect()
    connection.close()
    with pytest.raises(UnsupportedConnection, match="closed"):
        client.enqueue(connection, {}, tenant="t", executor="work")


async def test_a_closed_asynchronous_connection_is_refused(database: Database) -> None:
    client = AsyncClient()
    conn = await database.connect_async()
    await conn.close()
    with pytest.raises(UnsupportedConnection, match="closed"):
        await client.enqueue(conn, {}, tenant="t", executor="work")
    raw = await asyncpg.connect(database.url())
    await raw.close()
    with pytest.raises(UnsupportedConnection, match="closed"):
        await client.enqueue(raw, {}, tenant="t", executor="work")
    connection = await create_async_engine(database.url("psycopg"), poolclass=NullPool).connect()
    await connection.close()
    with pytest.raises(UnsupportedConnection, match="closed"):
        await client.enqueue(connection, {}, tenant="t", executor="work")


def test_a_schema_that_is_not_migrated_is_named(way: Way) -> None:
    elsewhere: Any = type(way.client)(schema="elsewhere")
    with pytest.raises(SchemaMismatch, match=r"'elsewhere'.*millpond migrate up"):
        way.send(elsewhere, [elsewhere.job({}, tenant="t", executor="work")])
    way.rollback()


def test_other_errors_of_the_database_pass_as_they_are(database: Database, client: Client) -> None:
    with database.connect() as conn:
        conn.read_only = True
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            client.enqueue(conn, {}, tenant="t", executor="work")
