"""What the client's tests look with: at the rows, and at the wake-ups, from other connections."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from millpond.client import Client
from millpond.store.channel import channel
from millpond.testing.database import Database

from .ways import WAYS, Way


@dataclass(frozen=True)
class Onlooker:
    """A connection that sees what is committed, and hears what workers would hear."""

    conn: psycopg.Connection[Any]
    schema: str

    def jobs(self) -> list[dict[str, Any]]:
        """The committed jobs, in the order of their ids."""
        query = sql.SQL("SELECT * FROM {}.jobs ORDER BY id").format(sql.Identifier(self.schema))
        return self.conn.cursor(row_factory=dict_row).execute(query).fetchall()

    def wake_ups(self) -> list[str]:
        """The payloads of all wake-ups that were committed since the last look.

        Notifications come in the order of their commits; so after one of our own there is nothing left to wait for.
        """
        self.conn.execute("SELECT pg_notify(%s, 'the end')", [channel(self.schema)])
        heard: list[str] = []
        for notify in self.conn.notifies(timeout=30.0):
            if notify.payload == "the end":
                return heard
            heard.append(notify.payload)
        raise AssertionError("our own notification did not come")

    def next_wake_up(self) -> str:
        """Wait for one wake-up."""
        return next(self.conn.notifies(timeout=30.0, stop_after=1)).payload


@pytest.fixture
def client(database: Database) -> Client:
    """The synchronous client of the test's database."""
    return Client(schema=database.schema)


@pytest.fixture
def onlooker(database: Database) -> Iterator[Onlooker]:
    """Looks from outside."""
    with contextlib.closing(database.connect(autocommit=True)) as conn:
        conn.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel(database.schema))))
        yield Onlooker(conn, database.schema)


@pytest.fixture(params=list(WAYS))
def way(request: pytest.FixtureRequest, database: Database, client: Client) -> Iterator[Way]:
    """Each kind of connection in turn."""
    with WAYS[request.param](database, client) as opened:
        yield opened
