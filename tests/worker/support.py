"""What the worker's tests share: a store to look into, and settings in which nothing waits long."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import dict_row

from millpond import Client, ExecutorRegistry, PoolSettings, Worker, WorkerSettings
from millpond.events import Event, JobEvent
from millpond.testing.database import Database

LONG = 30.0
"""Seconds after which a test that waits for a fact gives up."""


def quick(**options: Any) -> WorkerSettings:
    """Settings for a test: short backoff, a grace that no test waits for."""
    defaults: dict[str, Any] = {"base_backoff": 0.01, "max_backoff": 0.02, "pool": PoolSettings(graceful_timeout=LONG)}
    return WorkerSettings(**(defaults | options))


async def eventually(fact: Callable[[], Any]) -> Any:
    """Wait until `fact()` is true; what it gave."""
    async with asyncio.timeout(LONG):
        while not (seen := fact()):  # noqa: ASYNC110 - facts in the database ring no event
            await asyncio.sleep(0.005)
    return seen


@dataclass
class Store:
    """The jobs of a test, from outside."""

    database: Database
    client: Client = field(default_factory=Client)

    def enqueue(
        self, executor: str = "work", *, tenant: str = "t", args: Mapping[str, Any] | None = None, **options: Any
    ) -> int:
        """Enqueue one job, committed."""
        with self.database.connect() as connection:
            return self.client.enqueue(connection, args or {}, tenant=tenant, executor=executor, **options)

    def enqueue_many(self, executor: str, tenants: Mapping[str, int]) -> list[int]:
        """Enqueue so many jobs for each tenant, in one transaction."""
        jobs = [
            self.client.job({"n": n}, tenant=tenant, executor=executor)
            for tenant, count in tenants.items()
            for n in range(count)
        ]
        with self.database.connect() as connection:
            return list(self.client.enqueue_many(connection, jobs))

    def rows(self) -> list[dict[str, Any]]:
        """Every job, by id."""
        with self.database.connect() as connection, connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute("SELECT * FROM millpond.jobs ORDER BY id").fetchall()

    def row(self, job_id: int) -> dict[str, Any]:
        """One job."""
        return next(row for row in self.rows() if row["id"] == job_id)

    def completed(self, jobs: int) -> bool:
        """Whether there are so many jobs, all completed."""
        return self.states() == {"completed": jobs}

    def states(self) -> dict[str, int]:
        """How many jobs are in each state."""
        with self.database.connect() as connection:
            rows = connection.execute("SELECT state, count(*) FROM millpond.jobs GROUP BY state").fetchall()
        return dict(rows)

    def workers(self) -> list[dict[str, Any]]:
        """Every worker's row."""
        with self.database.connect() as connection, connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute("SELECT * FROM millpond.workers ORDER BY number").fetchall()

    def execute(self, statement: str, *params: Any) -> None:
        """Change something behind the worker's back, committed."""
        with self.database.connect() as connection:
            connection.execute(sql.SQL(statement), params)


@dataclass
class Witness:
    """An observer that keeps what it sees."""

    events: list[Event] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[Any]) -> list[Any]:
        """The events of one class."""
        return [event for event in self.events if isinstance(event, kind)]


@contextlib.asynccontextmanager
async def working(
    store: Store,
    registry: ExecutorRegistry,
    *,
    observe: Callable[[Event], None] | None = None,
    observe_jobs: Callable[[JobEvent], None] | None = None,
    **options: Any,
) -> AsyncIterator[Worker]:
    """A worker beside the body."""
    worker = Worker(store.database.dsn, registry, settings=quick(**options), observe=observe, observe_jobs=observe_jobs)
    async with worker:
        yield worker


def sessions(store: Store) -> list[str]:
    """The names of millpond's own sessions on this database."""
    with psycopg.connect(store.database.dsn) as connection:
        rows = connection.execute(
            "SELECT application_name FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'millpond %'"
        ).fetchall()
    return sorted(row[0] for row in rows)
