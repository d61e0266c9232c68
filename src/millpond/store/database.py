"""Whether a database can be used as it is, in one sentence when it cannot: reachable, recent, UTF-8, migrated.

The worker asks when it starts, the migrations before they touch anything.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import tuple_row

from millpond.errors import DatabaseUnreachable, DatabaseUnsuitable, SchemaMismatch
from millpond.store.dsn import conninfo, described
from millpond.store.statement import Row, Statement

MINIMUM_SERVER: Final = 15
"""The oldest major version of PostgreSQL that the tests run on."""

REVISION: Final = 1
"""The newest migration that this code knows: the number in `revision`, and in the name of the file."""

OLDEST_REVISION: Final = 1
"""The oldest schema that this code works on, so that it may start before the migrations have run everywhere."""

CONNECT_TIMEOUT: Final = 10
"""Seconds, per address, unless the DSN says otherwise."""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What a server says about itself and about one schema."""

    version: int
    """As `server_version_num`: 150004 is 15.4."""
    encoding: str
    migrated: bool

    def check(self, minimum: int = MINIMUM_SERVER) -> None:
        """Raises DatabaseUnsuitable when millpond cannot live here."""
        if self.version < minimum * 10_000:
            raise DatabaseUnsuitable(
                f"The server is PostgreSQL {self.version // 10_000}; millpond needs {minimum} or newer."
            )
        if self.encoding != "UTF8":
            raise DatabaseUnsuitable(
                f"The database's encoding is {self.encoding}; millpond needs a database created with ENCODING 'UTF8'."
            )


@dataclass(frozen=True, slots=True)
class Revision:
    """Which migration a schema is at, as it says itself."""

    number: int
    serves: int
    """The oldest code that works on this schema, as the newest revision which that code knows."""

    def check(self, schema: str) -> None:
        """Raises SchemaMismatch when this code and the schema do not fit."""
        if self.number < OLDEST_REVISION:
            raise SchemaMismatch(
                f"Schema {schema!r} is at revision {self.number}, and this millpond needs {OLDEST_REVISION} or newer: "
                "run `millpond migrate up`."
            )
        if self.serves > REVISION:
            raise SchemaMismatch(
                f"Schema {schema!r} is at revision {self.number}, which serves code from revision {self.serves} on; "
                f"this millpond knows {REVISION}: install a newer millpond."
            )


def read_server(schema: str) -> Statement[ServerFacts]:
    """Ask the server about itself and this schema; needs no rights."""
    return Statement("read_server", schema, {"schema_name": schema}, _decode_server)


def read_revision(schema: str) -> Statement[Revision]:
    """Ask a migrated schema for its revision."""
    return Statement("read_revision", schema, {}, _decode_revision)


def check(connection: psycopg.Connection[Any], schema: str) -> None:
    """Raises DatabaseUnsuitable or SchemaMismatch when a worker cannot work here."""
    cursor = connection.cursor(row_factory=tuple_row)
    server, revision = read_server(schema), read_revision(schema)
    facts = server.decode(cursor.execute(server.text(), server.params).fetchall())
    _check_migrated(facts, schema)
    revision.decode(cursor.execute(revision.text(), revision.params).fetchall()).check(schema)


async def check_async(connection: psycopg.AsyncConnection[Any], schema: str) -> None:
    """Raises DatabaseUnsuitable or SchemaMismatch when a worker cannot work here."""
    cursor = connection.cursor(row_factory=tuple_row)
    server, revision = read_server(schema), read_revision(schema)
    facts = server.decode(await (await cursor.execute(server.text(), server.params)).fetchall())
    _check_migrated(facts, schema)
    revision.decode(await (await cursor.execute(revision.text(), revision.params)).fetchall()).check(schema)


@contextlib.contextmanager
def connected(dsn: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A connection in autocommit mode, for the body. Raises DatabaseUnreachable, and SettingsError for a bad DSN."""
    with contextlib.closing(connect(dsn)) as connection:
        yield connection


def connect(dsn: str, *, autocommit: bool = True) -> psycopg.Connection[tuple[Any, ...]]:
    """Connect as `connected` does; the caller closes."""
    params: dict[str, Any] = {"connect_timeout": CONNECT_TIMEOUT} | conninfo_to_dict(conninfo(dsn))
    try:
        return psycopg.connect(**params, autocommit=autocommit)
    except psycopg.OperationalError as error:
        raise unreachable(dsn, error) from error


def unreachable(dsn: str, error: Exception) -> DatabaseUnreachable:
    """The driver's complaint, which may take several lines, as one sentence that names the database."""
    lines = [line.strip(" \t-") for line in str(error).splitlines()]
    reason = next((line for line in reversed(lines) if "failed: " in line), lines[0] if lines else "no reason given")
    return DatabaseUnreachable(f"Cannot connect to {described(dsn)}: {reason.rpartition('failed: ')[2].rstrip('.')}.")


def _check_migrated(facts: ServerFacts, schema: str) -> None:
    facts.check()
    if not facts.migrated:
        raise SchemaMismatch(f"Schema {schema!r} of this database is not migrated: run `millpond migrate up`.")


def _decode_server(rows: Sequence[Row]) -> ServerFacts:
    return ServerFacts(*rows[0])


def _decode_revision(rows: Sequence[Row]) -> Revision:
    return Revision(*rows[0])
