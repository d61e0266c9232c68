"""Work that goes on through an outage, and what must be true of it afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from psycopg import sql

from millpond import ExecutorRegistry, JobContext, PoolSettings, Worker
from millpond.clock import monotonic
from millpond.events import DatabaseLost
from tests.worker.support import LONG, Store, Witness, eventually, quick

SHORT = 0.6
"""Seconds that a call may take in these tests: so long does a worker wait for a server that says nothing."""


@dataclass
class Load:
    """Jobs that take a moment each, so many at once that some are always under way."""

    store: Store
    jobs: int = 200
    witness: Witness = field(default_factory=Witness)
    starts: Counter[int] = field(default_factory=Counter)
    ended: int = 0
    ids: list[int] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def worked_on(self, dsn: str, **options: Any) -> AsyncIterator[Worker]:
        """A worker through this DSN that is amid the work when the body begins; all must be done after the body."""
        self.ids = self.store.enqueue_many("work", {"a": self.jobs // 2, "b": self.jobs - self.jobs // 2})
        defaults = {"pool": PoolSettings(worker_count=20, graceful_timeout=LONG), "statement_timeout": SHORT}
        settings = quick(**(defaults | options))
        begun = monotonic()
        async with Worker(dsn, self.registry(), settings=settings, observe=self.witness) as worker:
            await eventually(lambda: self.ended >= self.jobs // 6)
            yield worker
            await eventually(lambda: self.ended == self.jobs and not worker.health().unwritten)
        tally = await worker.finished()
        assert self.store.states() == {"completed": self.jobs}
        assert self.starts == Counter(self.ids), "an executor ran again"
        assert (tally.stale, tally.clean) == (0, True)
        self.check_rhythm(monotonic() - begun)

    def registry(self) -> ExecutorRegistry:
        registry = ExecutorRegistry()

        async def work(ctx: JobContext, args: Any) -> None:
            self.starts[ctx.job.id] += 1
            await asyncio.sleep(0.03)
            self.ended += 1

        registry.register("work", work)
        return registry

    async def progress(self) -> None:
        """Wait until more has been done, unless all is."""
        ended = self.ended
        await eventually(lambda: self.ended > ended or self.ended == self.jobs)

    def check_rhythm(self, elapsed: float) -> None:
        """Whether each loop waited between its failures as it said."""
        delays = defaultdict(list)
        for event in self.witness.of(DatabaseLost):
            delays[event.loop].append(event.delay)
        assert all(sum(waited[:-1]) <= elapsed for waited in delays.values()), dict(delays)


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged as a warning or worse."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def assert_one_line_per_failure(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing was logged but one line for each step of each loop's patience."""
    lines = [line for line in complaints(caplog) if "handed back" not in line]
    strange = [line for line in lines if not line.startswith("The ") or "failed and tries again in" not in line]
    assert not strange
    assert Counter(line.split()[1] for line in lines) == Counter(event.loop for event in load.witness.of(DatabaseLost))
    assert all("\n" not in line for line in lines)


def under_way(worker: Worker) -> int:
    """Tasks that wait or run."""
    pool = worker.health().pool
    return pool.queue_depth + pool.running if pool else 0


async def waiting_outcomes(worker: Worker) -> None:
    """Wait until all that was claimed has run, and waits to be written."""
    await eventually(lambda: worker.health().unwritten and not under_way(worker))


def said(load: Load, code: str) -> Callable[[], bool]:
    """Whether a loop has met this SQLSTATE, or these words."""
    return lambda: any(code in event.reason for event in load.witness.of(DatabaseLost))


def end_sessions(store: Store) -> None:
    """57P01, for all of the worker's."""
    store.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'millpond %%' AND %s",
        True,
    )


def alter(store: Store, change: str) -> None:
    """Change the database itself, whatever it is at present."""
    with store.database.connect(options="-c default_transaction_read_only=off") as connection:
        database = sql.Identifier(store.database.name)
        connection.execute(sql.SQL("ALTER DATABASE {} {}").format(database, sql.SQL(change)))


def waiting_for_a_lock(store: Store) -> list[int]:
    """The server processes of the worker that wait for somebody."""
    with store.database.connect() as connection:
        found = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name LIKE 'millpond %' AND wait_event_type = 'Lock'"
        ).fetchall()
    return [pid for (pid,) in found]
