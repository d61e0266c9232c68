"""A migrated database for each test: cloned from a template, and dropped after the test."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, LiteralString, Self

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy import URL

from millpond.settings import DEFAULT_SCHEMA
from millpond.store.dsn import conninfo
from millpond.store.migrations import upgrade

_LEFT: Final = """
SELECT pid, application_name, state, left(query, 200)
FROM pg_catalog.pg_stat_activity
WHERE datname = %s AND backend_type = 'client backend'
ORDER BY pid
"""

_GRACE: Final = 2.0
"""Seconds."""


class LeftConnections(AssertionError):
    """A test that left connections to its database open."""


@dataclass(frozen=True, slots=True)
class Database:
    """A database of one's own."""

    dsn: str
    """As libpq, and so psycopg, takes it."""
    schema: str = DEFAULT_SCHEMA

    @property
    def name(self) -> str:
        """Its name within the server."""
        return str(conninfo_to_dict(self.dsn)["dbname"])

    def url(self, driver: str | None = None) -> str:
        """As SQLAlchemy takes it, for this driver: `psycopg`, `psycopg2` or `asyncpg`; None: as raw asyncpg does."""
        params = {name: str(value) for name, value in conninfo_to_dict(self.dsn).items()}
        url = URL.create(
            f"postgresql+{driver}" if driver else "postgresql",
            username=params.pop("user", None),
            password=params.pop("password", None),
            database=params.pop("dbname", None),
            query=params,
        )
        return url.render_as_string(hide_password=False)

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        """A connection; the caller closes it."""
        return psycopg.connect(self.dsn, **options)

    async def connect_async(self, **options: Any) -> psycopg.AsyncConnection[Any]:
        """A connection; the caller closes it."""
        return await psycopg.AsyncConnection.connect(self.dsn, **options)


class Databases:
    """Makes databases on one server, with the rights of a role that may. Closed at the end of its `with`."""

    def __init__(self, dsn: str, schema: str = DEFAULT_SCHEMA) -> None:
        """`dsn`: any database of the server, in any form. `schema`: what the template is migrated with."""
        self._dsn = conninfo(dsn)
        self._schema = schema
        self._admin = psycopg.connect(self._dsn, autocommit=True)
        self._names = (f"millpond_test_{secrets.token_hex(4)}_{number}" for number in itertools.count(1))
        self._template: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._template is not None:
            self._drop(self._template)
        self._admin.close()

    @contextlib.contextmanager
    def migrated(self) -> Iterator[Database]:
        """A migrated database, dropped after the body. Raises LeftConnections when the body left some to it."""
        if self._template is None:
            self._template = self._make_template()
        # A copy of files takes half the time of the default, a copy through the log.
        with self._temporary(sql.SQL("TEMPLATE {} STRATEGY file_copy").format(sql.Identifier(self._template))) as made:
            yield made

    @contextlib.contextmanager
    def empty(self, encoding: str = "UTF8") -> Iterator[Database]:
        """A database with nothing in it, dropped after the body. Raises LeftConnections when it left some."""
        options = sql.SQL("TEMPLATE template0 ENCODING {} LOCALE 'C' STRATEGY file_copy").format(encoding)
        with self._temporary(options) as made:
            yield made

    @contextlib.contextmanager
    def _temporary(self, options: sql.Composable) -> Iterator[Database]:
        made = self._create(options)
        try:
            yield made
            self._check_left(made)
        finally:
            self._drop(made.name)

    def _make_template(self) -> str:
        made = self._create(sql.SQL("TEMPLATE template0 ENCODING 'UTF8'"))
        upgrade(made.dsn, self._schema)
        # Nobody is to be in it when it is copied.
        self._execute("ALTER DATABASE {} ALLOW_CONNECTIONS false", made.name)
        return made.name

    def _create(self, options: sql.Composable) -> Database:
        made = Database(make_conninfo(self._dsn, dbname=next(self._names)), self._schema)
        self._admin.execute(sql.SQL("CREATE DATABASE {} {}").format(sql.Identifier(made.name), options))
        return made

    def _drop(self, name: str) -> None:
        self._execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", name)

    def _execute(self, statement: LiteralString, name: str) -> None:
        self._admin.execute(sql.SQL(statement).format(sql.Identifier(name)))

    def _check_left(self, made: Database) -> None:
        """A closed connection's process needs a moment to end."""
        deadline = time.monotonic() + _GRACE
        while left := self._admin.execute(_LEFT, [made.name]).fetchall():
            if time.monotonic() > deadline:
                listed = "; ".join(f"pid {pid} ({name!r}, {state}): {query}" for pid, name, state, query in left)
                raise LeftConnections(f"Connections were left open: {listed}. Close them before the test ends.")
            time.sleep(0.005)
