"""What a worker does that cannot say that it lives: it stops before others may take over, and begins anew."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from millpond import ExecutorRegistry, JobContext, PoolSettings, Worker
from millpond.clock import monotonic
from millpond.events import DatabaseLost, JobsSettled, LeaseLost
from millpond.testing.proxy import Proxy
from tests.worker.support import Store, Witness, eventually, quick, working

LEASE: dict[str, Any] = {"stale_timeout": 1.2, "beat_interval": 0.1}
"""A beat may take 0.3 s here, and after 1.1 s without one the lease is over."""


@dataclass
class Jobs:
    """Executors: `short` ends when it is let; `long` does not end at its first attempt, and notes how it was ended."""

    store: Store
    starts: Counter[int] = field(default_factory=Counter)
    still_held: list[bool] = field(default_factory=list)
    let: asyncio.Event = field(default_factory=asyncio.Event)

    def registry(self) -> ExecutorRegistry:
        registry = ExecutorRegistry()
        registry.register("short", self.short)
        registry.register("long", self.long)
        return registry

    async def short(self, ctx: JobContext, args: Any) -> None:
        self.starts[ctx.job.id] += 1
        await self.let.wait()

    async def long(self, ctx: JobContext, args: Any) -> None:
        self.starts[ctx.job.id] += 1
        if self.starts[ctx.job.id] > 1:
            return
        try:
            await asyncio.Event().wait()
        finally:
            self.still_held.append(self.holds_lease(ctx.job.id))

    def holds_lease(self, job_id: int) -> bool:
        """Whether the worker that has this job may still have it, by the database's clock."""
        with self.store.database.connect() as connection:
            return bool(
                connection.execute(
                    "SELECT w.expires_at > clock_timestamp() FROM millpond.jobs AS j"
                    " JOIN millpond.workers AS w ON w.id = j.worker_id WHERE j.id = %s",
                    (job_id,),
                ).fetchall()[0][0]
            )


async def test_one_beat_s_connection_that_is_dead_does_not_end_the_lease(store: Store, proxy: Proxy) -> None:
    jobs, witness = Jobs(store), Witness()
    job_id = store.enqueue("short")
    async with Worker(proxy.dsn, jobs.registry(), settings=quick(**LEASE), observe=witness):
        await eventually(lambda: jobs.starts[job_id])
        for _ in range(3):
            proxy.half_open("millpond lease")
            await next_beat(store)
        jobs.let.set()
        await eventually(lambda: store.row(job_id)["state"] == "completed")
    assert witness.of(LeaseLost) == []
    assert {event.loop for event in witness.of(DatabaseLost)} == {"lease"}
    assert jobs.starts == {job_id: 1}


async def test_a_worker_whose_beats_alone_are_lost_stops_in_time_and_registers_anew(
    store: Store, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    jobs, witness = Jobs(store), Witness()
    jobs.let.set()
    job_id = store.enqueue("long")
    async with Worker(proxy.dsn, jobs.registry(), settings=quick(**LEASE), observe=witness):
        await eventually(lambda: jobs.starts[job_id])
        (before,) = store.workers()
        proxy.block(name="millpond lease")
        await eventually(lambda: witness.of(LeaseLost))
        proxy.heal()
        another = store.enqueue("short")
        await eventually(lambda: store.row(another)["state"] == "completed")
        after = store.workers()[-1]
        assert store.row(job_id)["state"] == "running"  # for others, or for itself, to take back: user code had run
    assert jobs.still_held == [True]  # it was cancelled before anybody could
    assert after["number"] > before["number"]
    assert jobs.starts == {job_id: 1, another: 1}
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert len(errors) == 1
    assert "no beat was acknowledged" in errors[0]


@pytest.mark.usefixtures("impatient")
async def test_an_outage_longer_than_the_lease_loses_no_outcome(store: Store, proxy: Proxy) -> None:
    """What had ended is written when the network is back, by each worker its own, though one is back sooner."""
    jobs, witness = Jobs(store), Witness()
    ids = store.enqueue_many("short", {"a": 250, "b": 250})
    lease = LEASE | {"stale_timeout": 2.0}  # the one that is back first waits three times as long for the other
    settings = quick(**lease, statement_timeout=1.0, claim_size=20, pool=PoolSettings(worker_count=10))
    with Proxy(store.database.dsn) as another:
        workers = [Worker(way.dsn, jobs.registry(), settings=settings, observe=witness) for way in (proxy, another)]
        async with workers[0], workers[1]:
            await eventually(lambda: len(jobs.starts) == 20)
            proxy.block()
            another.block()
            jobs.let.set()
            await eventually(lambda: all(worker.health().unwritten >= 10 for worker in workers))
            await eventually(lambda: len(witness.of(LeaseLost)) == 2 and long_silent(store))
            proxy.heal()
            await eventually(lambda: not workers[0].health().unwritten)
            await asyncio.sleep(0.2)  # it could take back what the other one holds
            another.heal()
            await eventually(lambda: store.states() == {"completed": 500})
            tallies = [await stopped(worker) for worker in workers]
    assert jobs.starts == Counter(ids)
    assert [tally.stale for tally in tallies] == [0, 0]


async def test_what_others_took_over_meanwhile_is_too_late_and_counted(store: Store, proxy: Proxy) -> None:
    jobs, witness, others = Jobs(store), Witness(), Jobs(store)
    others.let.set()
    ids = store.enqueue_many("short", {"a": 10})
    settings = quick(**LEASE, statement_timeout=1.0)
    async with Worker(proxy.dsn, jobs.registry(), settings=settings, observe=witness) as worker:
        await eventually(lambda: len(jobs.starts) == 10)
        proxy.block()
        jobs.let.set()
        async with working(store, others.registry(), **LEASE):
            await eventually(lambda: store.states() == {"completed": 10})
        proxy.heal()
        await eventually(lambda: sum(event.stale for event in witness.of(JobsSettled)) == 10)
        tally = await stopped(worker)
    assert tally.stale == 10
    assert jobs.starts == others.starts == Counter(ids)


async def test_beats_that_hang_do_not_hold_up_a_stop(store: Store, proxy: Proxy) -> None:
    jobs = Jobs(store)
    settings = quick(stale_timeout=600.0, beat_interval=0.05, statement_timeout=600.0)
    worker = Worker(proxy.dsn, jobs.registry(), settings=settings)
    running = asyncio.ensure_future(worker.run())
    await worker.ready()
    proxy.block("client", name="millpond lease")
    await asyncio.sleep(0.2)  # the next beat is under way, and will not be answered
    begun = monotonic()
    worker.stop()
    await running
    assert monotonic() - begun < 2.0


def long_silent(store: Store) -> bool:
    """Whether all workers are to be buried, and their turn has come."""
    with store.database.connect() as connection:
        row = connection.execute(
            "SELECT (SELECT max(expires_at) < now() FROM millpond.workers)"
            " AND (SELECT next_at < now() FROM millpond.duties WHERE name = 'reap')"
        ).fetchone()
    return bool(row and row[0])


async def next_beat(store: Store) -> None:
    """Wait until the worker's row is beaten again."""
    (before,) = store.workers()
    await eventually(lambda: store.workers()[0]["beat_at"] > before["beat_at"])


async def stopped(worker: Worker) -> Any:
    worker.stop()
    return await worker.finished()
