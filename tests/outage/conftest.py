"""A store, and a proxy before it that can take it away. Every test here is judged by the log of what moved."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millpond.testing.database import Database
from millpond.testing.proxy import Proxy
from tests.outage import bouncer
from tests.proof.fixtures import database, oracle
from tests.worker.support import Store

__all__ = ["database", "oracle"]


@pytest.fixture
def store(database: Database) -> Store:
    return Store(database)


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    """The way to the store that can be cut; the store itself stays in reach of the test."""
    with Proxy(database.dsn) as made:
        yield made


@pytest.fixture
def pooled(store: Store) -> Iterator[str]:
    """The way to the store through a PgBouncer."""
    if bouncer.PROGRAM is None:
        pytest.skip("needs pgbouncer (Debian's package of that name)")
    with bouncer.bouncing(store.database.dsn) as dsn:
        yield dsn


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops that fail many times in a row still try again soon."""
    monkeypatch.setattr("millpond.worker.patience.proportional_jitter", lambda attempt, base, cap: 0.05)
