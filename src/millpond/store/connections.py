"""Running a statement on the caller's own connection: in its transaction, whatever its settings, leaving them alone.

Libraries other than psycopg are recognised by their classes once the application has imported them: nothing here does,
and nothing needs them to be installed. For type checkers, their connections are described by what is used of them.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

import psycopg
from psycopg.rows import tuple_row

from millpond.errors import SchemaMismatch, UnsupportedConnection
from millpond.store.hints import migrate_command
from millpond.store.statement import Row, Statement

T = TypeVar("T")


# ── what may be passed ───────────────────────────────────────────────────────────────────────────────────────────────


class Rows(Protocol):
    """SQLAlchemy's CursorResult, as far as it is used."""

    def all(self) -> Sequence[Row]: ...


class Dialect(Protocol):
    """SQLAlchemy's Dialect, as far as it is used."""

    name: str
    driver: str


class SqlalchemyConnection(Protocol):
    """SQLAlchemy's Connection, on psycopg, psycopg2 or asyncpg."""

    @property
    def closed(self) -> bool: ...
    @property
    def dialect(self) -> Dialect: ...
    def exec_driver_sql(self, statement: str, parameters: Any, execution_options: Any, /) -> Rows: ...


class SqlalchemySession(Protocol):
    """SQLAlchemy's Session or scoped_session."""

    def connection(self) -> SqlalchemyConnection: ...


class DjangoConnection(Protocol):
    """Django's `connection`, or one of its `connections`."""

    @property
    def vendor(self) -> str: ...
    def cursor(self) -> AbstractContextManager[Any]: ...


class SqlalchemyAsyncConnection(Protocol):
    """SQLAlchemy's AsyncConnection, on psycopg or asyncpg."""

    @property
    def closed(self) -> bool: ...
    @property
    def dialect(self) -> Dialect: ...
    def exec_driver_sql(
        self, statement: str, parameters: Any, execution_options: Any, /
    ) -> Coroutine[Any, Any, Rows]: ...


class SqlalchemyAsyncSession(Protocol):
    """SQLAlchemy's AsyncSession or async_scoped_session."""

    def connection(self) -> Coroutine[Any, Any, SqlalchemyAsyncConnection]: ...


class AsyncpgConnection(Protocol):
    """asyncpg's Connection, of its own or from a pool."""

    def is_closed(self) -> bool: ...
    def fetch(self, query: str, /, *args: object) -> Coroutine[Any, Any, list[Any]]: ...


SyncConnection: TypeAlias = psycopg.Connection[Any] | SqlalchemyConnection | SqlalchemySession | DjangoConnection
"""What Client writes through."""

AsyncConnection: TypeAlias = (
    psycopg.AsyncConnection[Any] | SqlalchemyAsyncConnection | SqlalchemyAsyncSession | AsyncpgConnection
)
"""What AsyncClient writes through."""


# ── the two doors ────────────────────────────────────────────────────────────────────────────────────────────────────


def run(conn: SyncConnection, statement: Statement[T]) -> T:
    """Run the statement in the connection's transaction, as it stands.

    Raises UnsupportedConnection, before anything is sent; SchemaMismatch when the schema is not there. Other errors of
    the driver pass as they are.
    """
    fetch = _way(_SYNC, conn)
    try:
        rows = fetch(conn, statement)
    except Exception as error:
        _raise_if_not_migrated(error, statement.schema)
        raise
    return statement.decode(rows)


async def run_async(conn: AsyncConnection, statement: Statement[T]) -> T:
    """Run the statement in the connection's transaction, as it stands. Raises as `run` does."""
    fetch = _way(_ASYNC, conn)
    try:
        rows = await fetch(conn, statement)
    except Exception as error:
        _raise_if_not_migrated(error, statement.schema)
        raise
    return statement.decode(rows)


def is_async(conn: object) -> bool:
    """Whether this is a connection to be awaited: one for AsyncClient."""
    return any(kind.has(conn) for kind in _ASYNC)


# ── the ways through ─────────────────────────────────────────────────────────────────────────────────────────────────
# Each asks for plain tuples by its own means: the connection's row or cursor factory is the caller's business.


def _by_psycopg(conn: psycopg.Connection[Any], statement: Statement[Any]) -> Sequence[Row]:
    _refuse_closed(conn, closed=conn.closed)
    cursor = psycopg.Cursor(conn, row_factory=tuple_row)
    return cursor.execute(statement.text(), statement.params).fetchall()


async def _by_psycopg_async(conn: psycopg.AsyncConnection[Any], statement: Statement[Any]) -> Sequence[Row]:
    _refuse_closed(conn, closed=conn.closed)
    cursor = psycopg.AsyncCursor(conn, row_factory=tuple_row)
    return await (await cursor.execute(statement.text(), statement.params)).fetchall()


def _by_sqlalchemy(conn: SqlalchemyConnection, statement: Statement[Any]) -> Sequence[Row]:
    _refuse_closed(conn, closed=conn.closed)
    return conn.exec_driver_sql(*_for_driver(conn, statement), _WHOLE_RESULT).all()


async def _by_sqlalchemy_async(conn: SqlalchemyAsyncConnection, statement: Statement[Any]) -> Sequence[Row]:
    _refuse_closed(conn, closed=conn.closed)
    return (await conn.exec_driver_sql(*_for_driver(conn, statement), _WHOLE_RESULT)).all()


def _by_session(session: SqlalchemySession, statement: Statement[Any]) -> Sequence[Row]:
    return _by_sqlalchemy(session.connection(), statement)


async def _by_session_async(session: SqlalchemyAsyncSession, statement: Statement[Any]) -> Sequence[Row]:
    return await _by_sqlalchemy_async(await session.connection(), statement)


def _by_django(conn: DjangoConnection, statement: Statement[Any]) -> Sequence[Row]:
    if getattr(conn, "vendor", None) != "postgresql":
        raise _unsupported(conn, "its database is not PostgreSQL")
    with conn.cursor() as cursor:
        cursor.execute(statement.text(), statement.params)
        rows: Sequence[Row] = cursor.fetchall()
        return rows


async def _by_asyncpg(conn: AsyncpgConnection, statement: Statement[Any]) -> Sequence[Row]:
    _refuse_closed(conn, closed=conn.is_closed())
    return await conn.fetch(statement.text("numbered"), *statement.positional())


_WHOLE_RESULT: Final[Mapping[str, object]] = {"stream_results": False, "yield_per": None}
"""Against options of the caller's that would wrap the statement in a server-side cursor."""


def _for_driver(
    conn: SqlalchemyConnection | SqlalchemyAsyncConnection, statement: Statement[Any]
) -> tuple[str, Mapping[str, Any] | tuple[Any, ...]]:
    """The text and the parameters as the driver below this SQLAlchemy connection takes them."""
    match conn.dialect.name, conn.dialect.driver:
        case "postgresql", "psycopg" | "psycopg2":
            return statement.text(), statement.params
        case "postgresql", "asyncpg":
            return statement.text("numbered"), tuple(statement.positional())
    raise _unsupported(conn, f"it is on {conn.dialect.name}+{conn.dialect.driver}; see below for what may be used")


# ── recognising, and refusing ────────────────────────────────────────────────────────────────────────────────────────


class _Class(NamedTuple):
    """A class by name; it may not have been imported, and then nothing is an instance of it."""

    module: str
    name: str

    def has(self, value: object) -> bool:
        kind = getattr(sys.modules.get(self.module), self.name, None)
        return isinstance(kind, type) and isinstance(value, kind)


_SYNC: Final[Mapping[_Class, Callable[[Any, Statement[Any]], Sequence[Row]]]] = {
    _Class("psycopg", "Connection"): _by_psycopg,
    _Class("sqlalchemy.engine", "Connection"): _by_sqlalchemy,
    _Class("sqlalchemy.orm", "Session"): _by_session,
    _Class("sqlalchemy.orm", "scoped_session"): _by_session,
    _Class("django.utils.connection", "ConnectionProxy"): _by_django,
    _Class("django.db.backends.base.base", "BaseDatabaseWrapper"): _by_django,
}

_ASYNC: Final[Mapping[_Class, Callable[[Any, Statement[Any]], Awaitable[Sequence[Row]]]]] = {
    _Class("psycopg", "AsyncConnection"): _by_psycopg_async,
    _Class("sqlalchemy.ext.asyncio", "AsyncConnection"): _by_sqlalchemy_async,
    _Class("sqlalchemy.ext.asyncio", "AsyncSession"): _by_session_async,
    _Class("sqlalchemy.ext.asyncio", "async_scoped_session"): _by_session_async,
    _Class("asyncpg", "Connection"): _by_asyncpg,
    _Class("asyncpg.pool", "PoolConnectionProxy"): _by_asyncpg,
}

_REMEDIES: Final[Mapping[_Class, str]] = {
    _Class("sqlalchemy.engine", "Engine"): "pass the connection of `with engine.begin() as connection`",
    _Class("sqlalchemy.ext.asyncio", "AsyncEngine"): "pass the connection of `async with engine.begin() as connection`",
    _Class("sqlalchemy.orm", "sessionmaker"): "pass the session of `with maker.begin() as session`",
    _Class("sqlalchemy.ext.asyncio", "async_sessionmaker"): "pass the session of `async with maker.begin() as session`",
    _Class("psycopg_pool", "ConnectionPool"): "pass the connection of `with pool.connection() as connection`",
    _Class("psycopg_pool", "AsyncConnectionPool"): "pass the one of `async with pool.connection() as connection`",
    _Class("asyncpg", "Pool"): "pass the connection of `async with pool.acquire() as connection`",
    _Class("psycopg", "Cursor"): "pass its connection",
    _Class("psycopg", "AsyncCursor"): "pass its connection",
    **dict.fromkeys(_ASYNC, "it is asynchronous; use AsyncClient, or pass a synchronous connection"),
    **dict.fromkeys(_SYNC, "it is synchronous; use Client, or pass an asynchronous connection"),
}

W = TypeVar("W")


def _way(ways: Mapping[_Class, W], conn: object) -> W:
    for kind, way in ways.items():
        if kind.has(conn):
            return way
    remedies = (remedy for kind, remedy in _REMEDIES.items() if kind.has(conn))
    raise _unsupported(conn, next(remedies, "it is not a connection that we know"))


def _refuse_closed(conn: object, *, closed: bool) -> None:
    if closed:
        raise _unsupported(conn, "it is closed; pass an open one, inside its transaction")


def _unsupported(conn: object, remedy: str) -> UnsupportedConnection:
    kind = type(conn)
    return UnsupportedConnection(
        f"Cannot write through this {kind.__module__}.{kind.__qualname__}: {remedy}. "
        "Accepted are an open psycopg Connection or AsyncConnection; a SQLAlchemy Connection, Session, scoped_session, "
        "AsyncConnection, AsyncSession or async_scoped_session on psycopg, psycopg2 or asyncpg; an asyncpg Connection; "
        "Django's connection to PostgreSQL."
    )


# ── one error that says what to do ───────────────────────────────────────────────────────────────────────────────────

_NOT_MIGRATED: Final = frozenset({"42P01", "42703", "3F000"})
"""SQLSTATEs: no such table, column, schema."""


def _raise_if_not_migrated(error: Exception, schema: str) -> None:
    """The drivers wrap one another; the code is on the error, on what it wraps, or on its cause."""
    for each in (error, getattr(error, "orig", None), error.__cause__):
        if (getattr(each, "sqlstate", None) or getattr(each, "pgcode", None)) in _NOT_MIGRATED:
            raise SchemaMismatch(
                f"Schema {schema!r} of this database is not migrated, or not far enough: run {migrate_command(schema)}."
            ) from error
