"""Whether a database can be used as it is, in one sentence when it cannot: reachable, recent, UTF-8, migrated.

The worker asks when it starts, the migrations before they touch anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from millpond.errors import DatabaseUnreachable, DatabaseUnsuitable, SchemaMismatch
from millpond.store.connections import AsyncConnection, SyncConnection, run, run_async
from millpond.store.dsn import conninfo, described
from millpond.store.hints import migrate_command
from millpond.store.statement import Statement

MINIMUM_SERVER: Final = 15
"""The oldest major version of PostgreSQL that the tests run on."""

REVISION: Final = 1
"""The newest migration that this code knows: the number in the table `revision`, and in the name of the file."""

OLDEST_REVISION: Final = 1
"""The oldest schema that this code works on: it may be deployed before the newest migration has run."""

_CONNECT_TIMEOUT: Final = 10
"""Seconds, per address, unless the DSN says otherwise."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says about itself, and about one schema."""

    version: int
    """As `server_version_num`: 150004 is 15.4."""
    encoding: str
    migrated: bool
    """Whether the schema holds our tables."""
    versioned: bool
    """Whether it holds an `alembic_version` too: not when an application's own environment migrates it."""

    def check(self) -> None:
        """Raises DatabaseUnsuitable when millpond cannot live here."""
        if self.version < MINIMUM_SERVER * 10_000:
            raise DatabaseUnsuitable(
                f"The server is PostgreSQL {self.version // 10_000}; millpond needs {MINIMUM_SERVER} or newer."
            )
        if self.encoding != "UTF8":
            raise DatabaseUnsuitable(
                f"The database's encoding is {self.encoding}; "
                "millpond needs one made with CREATE DATABASE … ENCODING 'UTF8'."
            )


@dataclass(frozen=True, slots=True)
class Revision:
    """Which migration a schema is at, as it says itself."""

    number: int
    serves: int
    """The oldest code that works on this schema, by the newest revision that such code knows."""


def read_server(schema: str) -> Statement[ServerFacts]:
    """Ask the server about itself and this schema: needs no rights."""
    return Statement("read_server", schema, {"schema_name": schema}, lambda rows: ServerFacts(*rows[0]))


def read_revision(schema: str) -> Statement[Revision]:
    """Ask a migrated schema for its revision."""
    return Statement("read_revision", schema, {}, lambda rows: Revision(*rows[0]))


def check(connection: SyncConnection, schema: str) -> None:
    """Raises DatabaseUnsuitable or SchemaMismatch when this code cannot work on this schema."""
    _check_server(run(connection, read_server(schema)), schema)
    _check_revision(run(connection, read_revision(schema)), schema)


async def check_async(connection: AsyncConnection, schema: str) -> None:
    """Raises DatabaseUnsuitable or SchemaMismatch when this code cannot work on this schema."""
    _check_server(await run_async(connection, read_server(schema)), schema)
    _check_revision(await run_async(connection, read_revision(schema)), schema)


def check_migratable(connection: SyncConnection, schema: str) -> None:
    """Raises DatabaseUnsuitable or SchemaMismatch when this code's migrations cannot run on this schema."""
    server = run(connection, read_server(schema))
    server.check()
    if not server.migrated:
        return
    if not server.versioned:
        raise SchemaMismatch(
            f"Schema {schema!r} is migrated by another Alembic environment, which knows its revision: use that one."
        )
    number = run(connection, read_revision(schema)).number
    if number > REVISION:
        raise SchemaMismatch(
            f"Schema {schema!r} is at revision {number}; this millpond knows {REVISION}: migrate with a newer one."
        )


def connect(dsn: str, *, autocommit: bool = True) -> psycopg.Connection[tuple[Any, ...]]:
    """Connect. Raises DatabaseUnreachable, in one sentence without the password, and SettingsError for a bad DSN."""
    ours = {"connect_timeout": _CONNECT_TIMEOUT, "application_name": "millpond"}
    params: dict[str, Any] = ours | conninfo_to_dict(conninfo(dsn))
    try:
        return psycopg.connect(**params | {"client_encoding": "UTF8"}, autocommit=autocommit)
    except psycopg.OperationalError as error:
        raise unreachable(dsn, error) from error


@contextlib.contextmanager
def connected(dsn: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A connection in autocommit mode, for the body. Raises as `connect` does."""
    with contextlib.closing(connect(dsn)) as connection:
        yield connection


def unsuitable(error: psycopg.Error) -> DatabaseUnsuitable:
    """The error for a role that may not do what it has to."""
    return DatabaseUnsuitable(
        f"The database refuses this role: {error.diag.message_primary}; grant it what README lists for workers."
    )


def unreachable(dsn: str, error: Exception) -> DatabaseUnreachable:
    """The driver's complaint, which may take several lines, as one sentence that names the database."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = next((line for line in reversed(lines) if "failed: " in line), lines[0] if lines else "no reason given")
    return DatabaseUnreachable(f"Cannot connect to {described(dsn)}: {said.rpartition('failed: ')[2].rstrip('.')}.")


def _check_server(server: ServerFacts, schema: str) -> None:
    server.check()
    if not server.migrated:
        raise SchemaMismatch(f"Schema {schema!r} of this database is not migrated: run {migrate_command(schema)}.")


def _check_revision(revision: Revision, schema: str) -> None:
    if revision.number < OLDEST_REVISION:
        raise SchemaMismatch(
            f"Schema {schema!r} is at revision {revision.number}; this millpond needs {OLDEST_REVISION} or newer: "
            f"run {migrate_command(schema)}."
        )
    if revision.serves > REVISION:
        raise SchemaMismatch(
            f"Schema {schema!r} serves code from revision {revision.serves} on; this millpond knows {REVISION}: "
            "install a newer one."
        )
