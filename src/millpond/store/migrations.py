"""Run the shipped migrations from code: what the command line, tests and an application's own scripts call.

`migrations/env.py` takes from here what it needs when Alembic's own command line runs it.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, TextIO

import psycopg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from psycopg.errors import LockNotAvailable
from sqlalchemy import Connection, Engine, NullPool, TextClause, create_engine, event
from sqlalchemy.exc import OperationalError

from millpond.errors import StoreError
from millpond.settings import checked_schema
from millpond.shipped import shipped
from millpond.store.database import connect, read_server
from millpond.store.ddl import OPTION, create_schema, drop_schema, drop_version_table

DSN: Final = "millpond_dsn"
"""The attribute of an Alembic Config that holds the DSN."""

LOCK_TIMEOUT: Final = 2_000
"""Milliseconds that a migration waits for a table's lock. While it waits, everyone behind it waits too."""

_TRIES: Final = 60
_PAUSE: Final = 1.0
"""Seconds between two tries to get such a lock."""

_POLL: Final = 0.1
"""Seconds between two looks whether another migration of the schema has ended."""

_GUARD: Final = "SELECT pg_try_advisory_xact_lock(hashtextextended('millpond migrations of ' || %s, 0))"


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """Where a schema is, and what there is to come."""

    current: str | None
    """The revision that the schema is at; None when nothing was migrated."""
    pending: tuple[str, ...]
    """The revisions still to run, in their order."""


def upgrade(dsn: str, schema: str, revision: str = "head") -> None:
    """Bring the schema up to this revision; does nothing when it is there already."""
    command.upgrade(_config(dsn, schema), revision)


def downgrade(dsn: str, schema: str, revision: str) -> None:
    """Take the schema down to this revision: `base`, or `-n` for n steps."""
    command.downgrade(_config(dsn, schema), revision)


def status(dsn: str, schema: str) -> MigrationStatus:
    """Where this schema is. Changes nothing."""
    script = ScriptDirectory.from_config(_config(dsn, schema))
    with _engine(dsn).connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table_schema": schema})
        current = context.get_current_revision()
    pending = [step.revision for step in script.iterate_revisions("heads", current or "base")]
    return MigrationStatus(current, tuple(reversed(pending)))


def sql(schema: str, span: str = "head") -> str:
    """The SQL of these migrations, for those who run it themselves: `head`, or `from:to`."""
    output = io.StringIO()
    command.upgrade(_config("", schema, output), span, sql=True)
    return output.getvalue()


def run_online(dsn: str, schema: str, run: Callable[[Connection], None]) -> None:
    """Give `run` a connection on which to run Alembic's steps; all that surrounds them is done here.

    Another migration of this schema is waited for. A step that cannot get a table's lock soon is tried again, from
    where the schema is then. Raises StoreError when the server is not suitable or the lock not to be had.
    """
    with contextlib.closing(connect(dsn, autocommit=False)) as guard, _alone(guard, schema):
        for _ in range(_TRIES):
            try:
                with _engine(dsn).connect() as connection:
                    _execute(connection, create_schema(schema))
                    run(connection)
                    _tidy(connection, schema)
            except OperationalError as error:
                if not isinstance(error.orig, LockNotAvailable):
                    raise
                time.sleep(_PAUSE)
            else:
                return
    raise StoreError(
        f"A table of schema {schema!r} stayed locked by others while {_TRIES} tries were made: "
        "look for long transactions in pg_stat_activity, then run the migrations again."
    )


@contextlib.contextmanager
def _alone(guard: psycopg.Connection[tuple[Any, ...]], schema: str) -> Iterator[None]:
    """Keep every other migration of this schema waiting while the body runs.

    The lock belongs to a transaction of a connection of its own: it outlives the transactions of the single steps, and
    goes when the process does. Who waits holds no snapshot, which a CREATE INDEX CONCURRENTLY would have to wait for.
    """
    while not _acquired(guard, schema):
        guard.rollback()
        time.sleep(_POLL)
    yield


def _acquired(guard: psycopg.Connection[tuple[Any, ...]], schema: str) -> bool:
    _check_server(guard, schema)
    guard.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
    row = guard.execute(_GUARD, [schema]).fetchone()
    return row is not None and bool(row[0])


def _check_server(connection: psycopg.Connection[tuple[Any, ...]], schema: str) -> None:
    question = read_server(schema)
    question.decode(connection.execute(question.text(), question.params).fetchall()).check()


def _engine(dsn: str) -> Engine:
    made = create_engine(
        "postgresql+psycopg://",
        creator=lambda: connect(dsn, autocommit=False),
        poolclass=NullPool,
        isolation_level="READ COMMITTED",
    )
    event.listen(made, "begin", _set_up)
    return made


def _set_up(connection: Connection) -> None:
    """At the start of each transaction; outside of one, CREATE INDEX CONCURRENTLY waits for as long as it must."""
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT}")
    # A statement that forgot to name its schema fails, instead of finding something else of that name.
    connection.exec_driver_sql("SET LOCAL search_path = ''")


def _tidy(connection: Connection, schema: str) -> None:
    """After the last step down, take away what was there for Alembic's sake, so that nothing is left behind."""
    context = MigrationContext.configure(connection, opts={"version_table_schema": schema})
    if not context.get_current_heads():
        connection.execute(drop_version_table(schema))
        connection.execute(drop_schema(schema))
    connection.commit()


def _execute(connection: Connection, statement: TextClause) -> None:
    connection.execute(statement)
    connection.commit()


def _config(dsn: str, schema: str, output: TextIO | None = None) -> Config:
    config = Config(output_buffer=output, attributes={OPTION: checked_schema(schema), DSN: dsn})
    config.set_main_option("script_location", str(shipped("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
