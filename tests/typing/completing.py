"""What type checkers say of `ctx.complete_in`: mypy must accept each line, and miss the error where one is ignored."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, assert_type

import psycopg
from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from millpond import JobContext


class DjangoConnection:
    """As Django's stubs have it: `BaseDatabaseWrapper`."""

    vendor: str

    def commit(self) -> None: ...
    def cursor(self) -> Any: ...


class AsyncpgConnection:
    """As asyncpg has it: `Connection` and `PoolConnectionProxy`."""

    def is_closed(self) -> bool:
        return False

    async def fetch(
        self, query: str, *args: object, timeout: float | None = None, record_class: type[Any] | None = None
    ) -> list[Any]:
        return []


def synchronous(
    ctx: JobContext,
    conn: psycopg.Connection[dict[str, Any]],
    connection: Connection,
    session: Session,
    scoped: scoped_session[Session],
    django: DjangoConnection,
) -> None:
    assert_type(ctx.complete_in(conn), None)
    assert_type(ctx.complete_in(connection), None)
    assert_type(ctx.complete_in(session), None)
    assert_type(ctx.complete_in(scoped), None)
    assert_type(ctx.complete_in(django), None)


async def asynchronous(
    ctx: JobContext,
    conn: psycopg.AsyncConnection[Any],
    connection: AsyncConnection,
    session: AsyncSession,
    scoped: async_scoped_session[AsyncSession],
    asyncpg: AsyncpgConnection,
) -> None:
    assert_type(ctx.complete_in(conn), Coroutine[Any, Any, None])  # type: ignore[unused-coroutine]
    await ctx.complete_in(conn)
    await ctx.complete_in(connection)
    await ctx.complete_in(session)
    await ctx.complete_in(scoped)
    await ctx.complete_in(asyncpg)


async def forgotten(
    ctx: JobContext,
    conn: psycopg.AsyncConnection[Any],
    connection: AsyncConnection,
    session: AsyncSession,
    scoped: async_scoped_session[AsyncSession],
    asyncpg: AsyncpgConnection,
) -> None:
    ctx.complete_in(conn)  # type: ignore[unused-coroutine]
    ctx.complete_in(connection)  # type: ignore[unused-coroutine]
    ctx.complete_in(session)  # type: ignore[unused-coroutine]
    ctx.complete_in(scoped)  # type: ignore[unused-coroutine]
    ctx.complete_in(asyncpg)  # type: ignore[unused-coroutine]


async def mistaken(
    ctx: JobContext, conn: psycopg.Connection[Any], cursor: psycopg.Cursor[Any], engine: Engine, other: AsyncEngine
) -> None:
    await ctx.complete_in(conn)  # type: ignore[misc]
    ctx.complete_in(cursor)  # type: ignore[call-overload]
    ctx.complete_in(engine)  # type: ignore[call-overload]
    ctx.complete_in(other)  # type: ignore[call-overload]
    ctx.complete_in(None)  # type: ignore[call-overload]
