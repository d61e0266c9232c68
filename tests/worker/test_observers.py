"""Observers hear what the database has confirmed; whatever they do, nothing else changes."""

from __future__ import annotations

import asyncio
import threading
from functools import partial
from typing import Any

import pytest

from millpond import ExecutorRegistry, JobContext
from millpond.events import JobCompleted, JobEvent, JobFailed, JobHeartbeat
from millpond.testing.database import Database
from tests.worker.support import LONG, Store, Witness, eventually, working


@pytest.fixture
def store(database: Database) -> Store:
    return Store(database)


def registry_of(**executors: Any) -> ExecutorRegistry:
    registry = ExecutorRegistry()
    for key, executor in executors.items():
        registry.register(key, executor)
    return registry


async def test_a_completion_is_told_once_the_database_has_it(store: Store) -> None:
    states: list[str] = []
    events: list[JobEvent] = []

    async def work(ctx: JobContext, args: Any) -> None:
        await asyncio.sleep(0.01)

    def observe(event: JobEvent) -> None:
        events.append(event)
        states.append(store.row(event.job.id)["state"])

    job_id = store.enqueue()
    async with working(store, registry_of(work=work), observe_jobs=observe):
        await eventually(lambda: states)
    (event,) = events
    assert isinstance(event, JobCompleted)
    assert event.job.id == job_id
    assert 0.01 <= event.seconds < LONG
    assert states == ["completed"]


async def test_a_failure_is_told_when_it_was_the_last(store: Store) -> None:
    events: list[JobEvent] = []

    async def work(ctx: JobContext, args: Any) -> None:
        raise ValueError(f"attempt {ctx.attempt}")

    store.enqueue(max_attempts=3)
    async with working(store, registry_of(work=work), observe_jobs=events.append):
        await eventually(lambda: events)
    (event,) = events
    assert isinstance(event, JobFailed)
    assert (event.job.attempt, str(event.error)) == (3, "attempt 3")
    assert store.states() == {"discarded": 1}


async def test_a_long_job_is_told_of_while_it_runs(store: Store) -> None:
    events: list[JobEvent] = []
    release = asyncio.Event()

    async def work(ctx: JobContext, args: Any) -> None:
        await release.wait()

    store.enqueue()
    async with working(store, registry_of(work=work), observe_jobs=events.append, beat_interval=0.02):
        await eventually(lambda: len(events) >= 2)
        assert all(isinstance(event, JobHeartbeat) for event in events)
        assert events[0].seconds < events[1].seconds  # type: ignore[union-attr]
        release.set()
        await eventually(lambda: isinstance(events[-1], JobCompleted))


async def test_an_outcome_of_a_lost_claim_is_not_told(store: Store) -> None:
    events: list[JobEvent] = []
    started, release = asyncio.Event(), asyncio.Event()
    witness = Witness()

    async def work(ctx: JobContext, args: Any) -> None:
        if ctx.job.executor == "work":
            started.set()
            await release.wait()

    job_id = store.enqueue()
    async with working(store, registry_of(work=work, other=work), observe=witness, observe_jobs=events.append):
        await started.wait()
        store.execute("DELETE FROM millpond.jobs WHERE id = %s", job_id)
        release.set()
        await eventually(lambda: any(getattr(event, "stale", 0) for event in witness.events))
        other = store.enqueue("other")
        await eventually(lambda: events)
    assert [event.job.id for event in events] == [other]


async def test_an_observer_that_raises_changes_nothing(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    def observe(event: Any) -> None:
        raise SystemExit("no")

    async def work(ctx: JobContext, args: Any) -> None: ...

    store.enqueue_many("work", {"a": 5})
    async with working(store, registry_of(work=work), observe=observe, observe_jobs=observe):
        await eventually(lambda: store.states() == {"completed": 5})
    assert "The observer failed on JobCompleted" in caplog.text


async def test_an_observer_that_hangs_changes_nothing(store: Store) -> None:
    release, hanging = threading.Event(), threading.Event()

    def observe(event: Any) -> None:
        hanging.set()
        release.wait(LONG)

    async def work(ctx: JobContext, args: Any) -> None: ...

    try:
        async with working(store, registry_of(work=work), observe=observe, observe_jobs=observe):
            await eventually(hanging.is_set)
            for n in range(1, 4):
                store.enqueue()
                await eventually(partial(store.completed, n))
    finally:
        release.set()
    await eventually(lambda: not any(thread.name == "millpond-observer" for thread in threading.enumerate()))
