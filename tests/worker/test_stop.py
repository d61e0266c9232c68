"""Stopping, at any moment, from anywhere, more than once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from millpond import ExecutorRegistry, JobContext, MillpondError, PoolSettings, Worker, WorkerThread
from millpond.store.link import Link
from millpond.store.statement import Statement
from millpond.testing.database import Database
from tests.worker.support import LONG, Store, eventually, quick, sessions, working


@pytest.fixture
def store(database: Database) -> Store:
    return Store(database)


@pytest.fixture
def registry() -> ExecutorRegistry:
    made = ExecutorRegistry()

    async def work(ctx: JobContext, args: Any) -> None: ...

    made.register("work", work)
    return made


async def test_before_it_starts(store: Store, registry: ExecutorRegistry) -> None:
    worker = Worker(store.database.dsn, registry, settings=quick())
    worker.stop()
    store.enqueue()
    await worker.run()
    assert store.states() == {"available": 1}
    assert store.workers() == []


@pytest.mark.parametrize("moment", ["register_worker", "claim_jobs", "settle_jobs", "promote_jobs", "take_duty"])
async def test_while_a_statement_is_under_way(
    store: Store, registry: ExecutorRegistry, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = store.enqueue_many("work", {"a": 20})
    worker = Worker(store.database.dsn, registry, settings=quick())
    answer, stopped = Link.run, []

    async def stop_under_way(link: Link, statement: Statement[Any]) -> Any:
        result = await answer(link, statement)
        if statement.name == moment:
            stopped.append(moment)
            worker.stop()
        return result

    monkeypatch.setattr(Link, "run", stop_under_way)
    async with asyncio.timeout(LONG):
        tally = await worker.run()
    assert stopped
    assert tally.clean
    states = store.states()
    assert set(states) <= {"available", "completed"}
    assert sum(states.values()) == len(ids)
    assert {(row["state"], row["attempt"]) for row in store.rows()} <= {("available", 0), ("completed", 1)}
    assert store.workers() == []


async def test_from_another_thread_and_again_and_after_the_end(store: Store, registry: ExecutorRegistry) -> None:
    worker = Worker(store.database.dsn, registry, settings=quick())
    running = asyncio.ensure_future(worker.run())
    await worker.ready()
    threads = [threading.Thread(target=worker.stop) for _ in range(3)]
    for thread in threads:
        thread.start()
    async with asyncio.timeout(LONG):
        await running
    for thread in threads:
        thread.join()
    worker.stop()
    worker.hurry()
    with pytest.raises(MillpondError, match="has run before"):
        await worker.run()


async def test_a_cancelled_worker_leaves_in_the_same_order(store: Store) -> None:
    registry, started = ExecutorRegistry(), asyncio.Event()

    async def hang(ctx: JobContext, args: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    registry.register("hang", hang)
    job_id = store.enqueue("hang")
    settings = quick(pool=PoolSettings(graceful_timeout=0.05))
    running = asyncio.ensure_future(Worker(store.database.dsn, registry, settings=settings).run())
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    row = store.row(job_id)
    assert (row["state"], row["attempt"]) == ("available", 0)
    assert store.workers() == []


async def test_a_job_that_refuses_to_end_is_left_behind_in_bounded_time(store: Store) -> None:
    registry, started, release = ExecutorRegistry(), threading.Event(), threading.Event()

    def stuck(ctx: JobContext, args: Any) -> None:
        started.set()
        release.wait(LONG)

    registry.register("stuck", stuck)
    job_id = store.enqueue("stuck")
    settings = quick(pool=PoolSettings(graceful_timeout=0.05, cancel_timeout=0.05))
    worker = Worker(store.database.dsn, registry, settings=settings)
    running = asyncio.ensure_future(worker.run())
    await asyncio.to_thread(started.wait, LONG)
    worker.stop()
    async with asyncio.timeout(LONG / 2):
        tally = await running
    release.set()
    assert (tally.cut_short, tally.clean) == (1, False)
    assert (store.row(job_id)["state"], store.row(job_id)["attempt"]) == ("available", 0)


async def test_the_tally_and_the_health_tell_the_truth(store: Store) -> None:
    registry = ExecutorRegistry()

    async def work(ctx: JobContext, args: Any) -> None:
        if ctx.job.executor == "fail":
            raise ValueError

    registry.register("work", work)
    registry.register("fail", work)
    store.enqueue_many("work", {"a": 3})
    store.enqueue("fail", max_attempts=1)
    async with working(store, registry, stale_timeout=42.0) as worker:
        await eventually(lambda: store.states() == {"completed": 3, "discarded": 1})
        health = worker.health()
        assert health.healthy
        assert health.lease == 42.0
        assert str(health.worker_id) == str(store.workers()[0]["id"])
        assert health.beat_age is not None
        assert health.beat_age < LONG
        assert health.pool is not None
        worker.stop()
        tally = await worker.finished()
    assert tally.settled == {"completed": 3, "discarded": 1}
    assert (tally.discarded, tally.stale, tally.clean) == (1, 0, True)
    after = worker.health()
    assert (after.healthy, after.stopping, after.worker_id) == (False, True, None)


def test_threads_start_and_stop_again_and_again(store: Store, registry: ExecutorRegistry) -> None:
    for n in range(1, 4):
        with WorkerThread(store.database.dsn, registry, settings=quick()) as thread:
            assert thread.health().healthy
            store.enqueue()
            while store.states() != {"completed": n}:
                threading.Event().wait(0.005)  # between two looks
    assert not any(t.name.startswith("millpond") for t in threading.enumerate())


async def test_a_start_that_is_cancelled_leaves_nothing(store: Store, registry: ExecutorRegistry) -> None:
    with store.database.connect() as blocker:
        blocker.execute("LOCK TABLE millpond.workers")  # it cannot register
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3), Worker(store.database.dsn, registry, settings=quick()):
                raise AssertionError
    await eventually(lambda: sessions(store) == [])


async def test_whoever_waits_for_a_worker_that_has_failed_is_told(store: Store, registry: ExecutorRegistry) -> None:
    worker = Worker("host=127.0.0.1 port=1", registry, settings=quick())
    with pytest.raises(MillpondError):
        await worker.run()
    async with asyncio.timeout(LONG):
        with pytest.raises(MillpondError, match="has ended"):
            await worker.ready()
