"""What is written, what is counted, and what is told, in the odd cases."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from millpond import ExecutorRegistry, JobContext
from millpond.events import JobCompleted, JobEvent
from millpond.testing.database import Database
from millpond.worker import settler
from tests.proof.oracle import Oracle
from tests.worker.support import Store, eventually, working


@pytest.fixture
def store(database: Database) -> Store:
    return Store(database)


async def test_a_job_that_completed_itself_is_completed_whatever_it_raises_afterwards(store: Store) -> None:
    registry, events = ExecutorRegistry(), list[JobEvent]()

    def work(ctx: JobContext, args: Any) -> None:
        with psycopg.connect(store.database.dsn) as connection:
            ctx.complete_in(connection)
        raise ValueError("too late")

    registry.register("work", work)
    job_id = store.enqueue()
    async with working(store, registry, observe_jobs=events.append) as worker:
        await eventually(lambda: events)
        worker.stop()
        tally = await worker.finished()
    assert store.row(job_id)["state"] == "completed"
    assert [type(event) for event in events] == [JobCompleted]
    assert (tally.settled, tally.stale) == ({"completed": 1}, 0)


async def test_a_completion_that_was_rolled_back_leaves_the_failure(store: Store) -> None:
    registry = ExecutorRegistry()

    def work(ctx: JobContext, args: Any) -> None:
        with psycopg.connect(store.database.dsn) as connection:
            ctx.complete_in(connection)
            raise ValueError("in time")

    registry.register("work", work)
    job_id = store.enqueue(max_attempts=1)
    async with working(store, registry) as worker:
        await eventually(lambda: store.row(job_id)["state"] == "discarded")
        worker.stop()
        tally = await worker.finished()
    assert (tally.settled, tally.stale) == ({"discarded": 1}, 0)


async def test_what_is_stale_is_not_counted_as_settled(store: Store) -> None:
    registry, started, release = ExecutorRegistry(), asyncio.Event(), asyncio.Event()

    async def work(ctx: JobContext, args: Any) -> None:
        started.set()
        await release.wait()

    registry.register("work", work)
    job_id = store.enqueue()
    async with working(store, registry) as worker:
        await started.wait()
        store.execute("DELETE FROM millpond.jobs WHERE id = %s", job_id)
        release.set()
        worker.stop()
        tally = await worker.finished()
    assert (tally.settled, tally.stale) == ({}, 1)


async def test_an_outcome_that_the_database_refuses_holds_up_no_other_and_is_tried_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    registry = ExecutorRegistry()
    monkeypatch.setattr(settler, "_AFTER_REFUSAL", 0.05)

    async def work(ctx: JobContext, args: Any) -> None:
        if ctx.job.executor == "fail":
            raise ValueError

    registry.register("work", work)
    registry.register("fail", work)
    with store.database.connect() as connection:
        connection.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not today'; END $$"
        )
        connection.execute(
            "CREATE TRIGGER refuse BEFORE UPDATE ON millpond.jobs FOR EACH ROW"
            " WHEN (NEW.state = 'retryable') EXECUTE FUNCTION refuse()"
        )
    store.enqueue_many("work", {"a": 20})
    store.enqueue("fail")
    store.enqueue_many("work", {"b": 20})
    async with working(store, registry):
        await eventually(lambda: store.states() == {"completed": 40, "running": 1})
        await eventually(lambda: caplog.text.count("is refused; it is tried again later") >= 2)
        store.execute("DROP TRIGGER refuse ON millpond.jobs")
        await eventually(lambda: store.states() == {"completed": 41} or store.states().get("retryable"))


async def test_what_is_refused_to_the_end_is_counted(store: Store, oracle: Oracle) -> None:
    registry = ExecutorRegistry()
    oracle.asleep = True  # the law that a worker leaves nothing behind is what the database does not let it keep

    async def work(ctx: JobContext, args: Any) -> None: ...

    registry.register("work", work)
    store.execute("ALTER TABLE millpond.jobs ADD CONSTRAINT never CHECK (state <> 'completed') NOT VALID")
    store.enqueue()
    async with working(store, registry) as worker:
        await eventually(lambda: store.states() == {"running": 1})
        worker.stop()
        tally = await worker.finished()
    assert (tally.unwritten, tally.clean) == (1, False)


async def test_failures_are_told_to_the_log_without_their_words(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    registry = ExecutorRegistry()

    async def work(ctx: JobContext, args: Any) -> None:
        raise ValueError("a secret of the tenant's")

    registry.register("work", work)
    job_id = store.enqueue(max_attempts=2, args={"canary": "in the args"})
    async with working(store, registry):
        await eventually(lambda: store.states() == {"discarded": 1})
    assert (
        f"Job {job_id} (work) of tenant 't' failed on attempt 1 of 2, and runs again in 0.0 s: ValueError at"
        in caplog.text
    )
    assert "failed on attempt 2 of 2, and is discarded: ValueError at" in caplog.text
    assert __file__ in caplog.text
    assert "secret" not in caplog.text
    assert "in the args" not in caplog.text


async def test_many_failures_are_few_lines(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    registry = ExecutorRegistry()

    async def work(ctx: JobContext, args: Any) -> None:
        raise ValueError

    registry.register("work", work)
    with store.database.connect() as connection:
        jobs = [store.client.job({}, tenant="t", executor="work", max_attempts=1) for _ in range(1_000)]
        store.client.enqueue_many(connection, jobs)
    async with working(store, registry):
        await eventually(lambda: store.states() == {"discarded": 1_000})
    assert caplog.text.count("failed on attempt") < 500
