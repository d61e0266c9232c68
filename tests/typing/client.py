"""What type checkers say of the client: mypy must accept each line, and miss the error where one is ignored."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import psycopg
from psycopg_pool import ConnectionPool
from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from millpond.client import AsyncClient, Client
from millpond.job import JobId, NewJob
from millpond.options import args


@args("sync_orders", max_attempts=10, queue="slow", priority=5, timeout=timedelta(minutes=1))
@dataclass(frozen=True)
class SyncOrders:
    since: int


assert_type(SyncOrders(since=1), SyncOrders)  # the decorator keeps the class
SyncOrders(until=1)  # type: ignore[call-arg]
args("sync_orders", max_attempt=10)  # type: ignore[call-arg]
args("sync_orders", delay=10)  # type: ignore[call-arg]


def accepted(
    client: Client,
    conn: psycopg.Connection[dict[str, Any]],
    connection: Connection,
    session: Session,
    scoped: scoped_session[Session],
) -> None:
    assert_type(client.enqueue(conn, SyncOrders(1), tenant="t"), JobId)
    assert_type(client.job(SyncOrders(1), tenant="t", delay=timedelta(1)), NewJob)
    assert_type(client.enqueue_many(connection, (client.job(SyncOrders(n), tenant="t") for n in range(3))), list[JobId])
    client.enqueue(session, {"a": 1}, tenant="t", executor="key", scheduled_at=datetime.now(UTC), metadata={"a": "b"})
    client.enqueue(scoped, SyncOrders(1), tenant="t", priority=1, max_attempts=2, timeout=3, delay=None)


async def accepted_async(
    client: AsyncClient,
    conn: psycopg.AsyncConnection[Any],
    connection: AsyncConnection,
    session: AsyncSession,
    scoped: async_scoped_session[AsyncSession],
) -> None:
    assert_type(await client.enqueue(conn, SyncOrders(1), tenant="t"), JobId)
    assert_type(await client.enqueue_many(connection, [client.job(SyncOrders(1), tenant="t")]), list[JobId])
    await client.enqueue(session, SyncOrders(1), tenant="t")
    await client.enqueue(scoped, SyncOrders(1), tenant="t")


def refused(
    client: Client,
    conn: psycopg.Connection[Any],
    cursor: psycopg.Cursor[Any],
    pool: ConnectionPool[Any],
    engine: Engine,
    maker: sessionmaker[Session],
    asynchronous: psycopg.AsyncConnection[Any],
    session: AsyncSession,
) -> None:
    client.enqueue(SyncOrders(1), tenant="t")  # type: ignore[call-arg, arg-type]
    client.enqueue(None, SyncOrders(1), tenant="t")  # type: ignore[arg-type]
    client.enqueue(cursor, SyncOrders(1), tenant="t")  # type: ignore[arg-type]
    client.enqueue(pool, SyncOrders(1), tenant="t")  # type: ignore[arg-type]
    client.enqueue(engine, SyncOrders(1), tenant="t")  # type: ignore[arg-type]
    client.enqueue(maker, SyncOrders(1), tenant="t")  # type: ignore[arg-type]
    client.enqueue(asynchronous, SyncOrders(1), tenant="t")  # type: ignore[arg-type]
    client.enqueue(session, SyncOrders(1), tenant="t")  # type: ignore[arg-type]
    client.enqueue(conn, SyncOrders(1))  # type: ignore[call-arg]
    client.enqueue(conn, SyncOrders(1), tenant="t", prioritty=1)  # type: ignore[call-arg]
    client.enqueue(conn, SyncOrders(1), tenant="t", priority="high")  # type: ignore[arg-type]
    client.enqueue_many(conn, [SyncOrders(1)])  # type: ignore[list-item]


async def refused_async(
    client: AsyncClient, conn: psycopg.Connection[Any], session: Session, engine: AsyncEngine
) -> None:
    await client.enqueue(conn, SyncOrders(1), tenant="t")  # type: ignore[arg-type]
    await client.enqueue(session, SyncOrders(1), tenant="t")  # type: ignore[arg-type]
    await client.enqueue(engine, SyncOrders(1), tenant="t")  # type: ignore[arg-type]
