"""What surrounds Alembic's steps on a database: one migration at a time, short waits for locks, nothing left behind."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from time import sleep as pause
from typing import Any, Final

import psycopg
from alembic.runtime.migration import MigrationContext
from psycopg.errors import DeadlockDetected, LockNotAvailable
from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.exc import DBAPIError

from millpond.errors import StoreError
from millpond.store.database import check_migratable, connect
from millpond.store.ddl import create_schema, drop_schema, drop_version_table

LOCK_TIMEOUT: Final = 2_000
"""Milliseconds that a step waits for a table's lock: while it waits, everybody who comes after it waits too."""

_TRIES: Final = 60
"""How often a step tries to get its locks."""

_PAUSE: Final = 1.0
"""Seconds between two tries, in which those who waited behind the step go on."""

_POLL: Final = 0.1
"""Seconds between two looks whether another migration of the schema has ended."""

_LOCK: Final = "SELECT pg_try_advisory_xact_lock(hashtextextended('millpond migrations of ' || %s, 0))"


def migrate(dsn: str, schema: str, run: Callable[[Connection], None]) -> None:
    """Give `run` a connection on which to run Alembic's steps, alone.

    A step that cannot get a lock soon is rolled back and tried again. Raises StoreError (one sentence) when the
    database is not suitable, refuses, or keeps a lock from us.
    """
    with plain_errors(), contextlib.closing(connect(dsn, autocommit=False)) as guard, _alone(guard, schema):
        for _ in range(_TRIES):
            try:
                return _run(dsn, schema, run)
            except DBAPIError as error:
                if not isinstance(error.orig, LockNotAvailable | DeadlockDetected):
                    raise
            pause(_PAUSE)
    raise StoreError(
        f"Others kept a lock that the migration of schema {schema!r} needs, through {_TRIES} tries: "
        "look for long transactions in pg_stat_activity, then migrate again."
    )


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """The driver's errors, SQLAlchemy's wrapping of them included, as a StoreError of one sentence."""
    try:
        yield
    except (DBAPIError, psycopg.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        reason = str(cause).partition("\n")[0]
        raise StoreError(f"The database refused: {reason}; nothing is left of what was under way.") from error


def open_engine(dsn: str) -> Engine:
    """An engine for one short use, with transactions as migrations want them."""
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: connect(dsn, autocommit=False),
        poolclass=NullPool,
        isolation_level="READ COMMITTED",  # whatever the database's default: each step sees what the last one did
    )
    event.listen(engine, "begin", _set_up)
    return engine


def _run(dsn: str, schema: str, run: Callable[[Connection], None]) -> None:
    with open_engine(dsn).connect() as connection:
        check_migratable(connection, schema)
        connection.execute(create_schema(schema))
        connection.commit()
        run(connection)
        _tidy(connection, schema)


def _set_up(connection: Connection) -> None:
    """At the start of each transaction. (Outside of one, CREATE INDEX CONCURRENTLY waits for as long as it must.)"""
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT}")
    connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
    # A statement that does not name its schema fails, instead of finding something else of that name.
    connection.exec_driver_sql("SET LOCAL search_path = ''")


def _tidy(connection: Connection, schema: str) -> None:
    """After the last step down, take away what was there for Alembic's sake."""
    context = MigrationContext.configure(connection, opts={"version_table_schema": schema})
    if not context.get_current_heads():
        connection.execute(drop_version_table(schema))
        connection.execute(drop_schema(schema))
    connection.commit()


@contextlib.contextmanager
def _alone(guard: psycopg.Connection[Any], schema: str) -> Iterator[None]:
    """Keep every other migration of this schema waiting while the body runs.

    The lock belongs to a transaction of a connection of its own: it outlives the transactions of the single steps, and
    goes when the process does. Who waits holds no snapshot, which a CREATE INDEX CONCURRENTLY would have to wait for.
    """
    while not _acquired(guard, schema):
        guard.rollback()
        pause(_POLL)
    yield


def _acquired(guard: psycopg.Connection[Any], schema: str) -> bool:
    guard.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
    return guard.execute(_LOCK, [schema]).fetchone() == (True,)
