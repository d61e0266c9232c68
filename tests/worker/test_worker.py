"""The worker on a real store: claims, runs, settles, retries, discards, wakes, stops."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict

import msgspec
import psycopg
import pydantic
import pytest

import millpond
from millpond import ClaimLost, ExecutorRegistry, JobContext, PoolSettings, Worker, WorkerSettings, WorkerThread
from millpond.errors import AnswerLost, DatabaseUnreachable, MillpondError, SchemaMismatch
from millpond.events import JobsSettled, JobsUnclaimable, LeaseLost
from millpond.store.link import Link
from millpond.store.statement import Statement
from millpond.testing.database import Database
from tests.worker.support import LONG, Store, Witness, eventually, quick, sessions, working


@pytest.fixture
def store(database: Database) -> Store:
    return Store(database)


@millpond.args("dataclass")
@dataclass(frozen=True)
class DataclassArgs:
    n: int
    name: str = "?"


@millpond.args("pydantic")
class PydanticArgs(pydantic.BaseModel):
    n: int


@millpond.args("struct")
class StructArgs(msgspec.Struct):
    n: int


class TypedDictArgs(TypedDict):
    n: int


async def test_every_kind_of_executor_gets_its_typed_args(store: Store) -> None:
    registry = ExecutorRegistry()
    seen: dict[str, Any] = {}

    @registry.executes(DataclassArgs)
    async def on_the_loop(ctx: JobContext, args: DataclassArgs) -> None:
        seen[ctx.job.executor] = (args, threading.current_thread() is threading.main_thread())

    @registry.executes(PydanticArgs)
    def in_a_thread(ctx: JobContext, args: PydanticArgs) -> None:
        seen[ctx.job.executor] = (args, threading.current_thread() is threading.main_thread())

    class Executes:
        async def execute(self, ctx: JobContext, args: StructArgs) -> None:
            seen[ctx.job.executor] = (args, ctx.metadata)

    registry.executes(StructArgs)(Executes())
    registry.register("typed dict", lambda ctx, args: seen.update({ctx.job.executor: args}), args=TypedDictArgs)

    def plain(ctx: JobContext, args: dict[str, Any]) -> None:
        seen[ctx.job.executor] = (args, ctx.tenant, ctx.attempt)

    registry.register("plain", plain)

    with store.database.connect() as connection:
        store.client.enqueue(connection, DataclassArgs(1, "one"), tenant="a")
        store.client.enqueue(connection, PydanticArgs(n=2), tenant="a")
        store.client.enqueue(connection, StructArgs(3), tenant="b", metadata={"why": "test"})
        store.client.enqueue(connection, {"n": 4}, tenant="b", executor="typed dict")
        store.client.enqueue(connection, {"n": [5]}, tenant="c", executor="plain")
    async with working(store, registry):
        await eventually(lambda: store.states() == {"completed": 5})
    assert seen == {
        "dataclass": (DataclassArgs(1, "one"), True),
        "pydantic": (PydanticArgs(n=2), False),
        "struct": (StructArgs(3), {"why": "test"}),
        "typed dict": {"n": 4},
        "plain": ({"n": [5]}, "c", 1),
    }
    assert all(row["finalized_at"] is not None and row["attempt"] == 1 for row in store.rows())


async def test_a_failing_job_is_retried_and_then_discarded_with_its_history(store: Store) -> None:
    registry = ExecutorRegistry()
    attempts: list[int] = []

    async def fail(ctx: JobContext, args: Any) -> None:
        attempts.append(ctx.attempt)
        raise ValueError(f"attempt {ctx.attempt}: \0 and \ud800")

    registry.register("fail", fail)
    job_id = store.enqueue("fail", max_attempts=3)
    async with working(store, registry):
        await eventually(lambda: store.states() == {"discarded": 1})
    row = store.row(job_id)
    assert attempts == [1, 2, 3]
    assert [(e["attempt"], e["type"], e["message"]) for e in row["errors"]] == [
        (n, "ValueError", f"attempt {n}: ␀ and ?") for n in (1, 2, 3)
    ]
    assert all("in fail" in e["traceback"] and e["at"] and e["worker"] for e in row["errors"])


async def test_what_fails_once_succeeds_later(store: Store) -> None:
    registry = ExecutorRegistry()

    def flaky(ctx: JobContext, args: Any) -> None:
        if ctx.attempt == 1:
            raise OSError("not yet")

    registry.register("work", flaky)
    job_id = store.enqueue()
    async with working(store, registry):
        await eventually(lambda: store.states() == {"completed": 1})
    assert store.row(job_id)["attempt"] == 2


async def test_args_that_do_not_fit_fail_that_job_alone(store: Store) -> None:
    registry = ExecutorRegistry()

    @registry.executes(StructArgs)
    async def work(ctx: JobContext, args: StructArgs) -> None: ...

    bad = store.enqueue("struct", args={"n": "many"}, max_attempts=1)
    good = store.enqueue("struct", args={"n": 1})
    async with working(store, registry):
        await eventually(lambda: store.states() == {"completed": 1, "discarded": 1})
    assert store.row(good)["state"] == "completed"
    assert store.row(bad)["errors"][0]["type"] == "InvalidArgs"
    assert "args.n" in store.row(bad)["errors"][0]["message"]


async def test_a_key_that_nobody_has_here_waits_blocks_nothing_and_is_seen(store: Store) -> None:
    registry, other = ExecutorRegistry(), ExecutorRegistry()
    witness = Witness()

    async def work(ctx: JobContext, args: Any) -> None: ...

    registry.register("known", work)
    other.register("elsewhere", work)
    store.enqueue_many("elsewhere", {"a": 300, **{f"only {n}": 1 for n in range(150)}})
    store.enqueue_many("known", {"a": 5, "z": 5})
    async with working(store, registry, observe=witness):
        await eventually(lambda: store.states() == {"completed": 10, "available": 450})
        seen = await eventually(lambda: witness.of(JobsUnclaimable))
        assert seen[0].seen == {"elsewhere": 20 + 150}
    async with working(store, other):
        await eventually(lambda: store.states() == {"completed": 460})
    assert all(row["attempt"] == 1 for row in store.rows())


@pytest.mark.parametrize(
    "way", [{"poll_interval": 3600.0}, {"listen": False, "poll_interval": 0.02}], ids=["notify", "poll"]
)
async def test_an_idle_worker_wakes(store: Store, way: dict[str, Any]) -> None:
    registry = ExecutorRegistry()

    async def work(ctx: JobContext, args: Any) -> None: ...

    registry.register("work", work)
    async with working(store, registry, **way):
        for n in range(1, 4):
            store.enqueue()
            await eventually(partial(store.completed, n))


async def test_a_scheduled_job_runs_when_it_is_due_and_not_before(store: Store) -> None:
    registry = ExecutorRegistry()

    async def work(ctx: JobContext, args: Any) -> None: ...

    registry.register("work", work)
    async with working(store, registry, poll_interval=3600.0):
        later = store.enqueue(delay=3600)
        soon = store.enqueue(delay=0.3)
        await eventually(lambda: store.row(soon)["state"] == "completed")
    row = store.row(soon)
    assert row["attempted_at"] >= row["scheduled_at"]
    assert store.row(later)["state"] == "scheduled"


async def test_a_tenants_own_jobs_go_by_priority_then_by_age(store: Store) -> None:
    registry = ExecutorRegistry()
    order: list[int] = []

    async def work(ctx: JobContext, args: Any) -> None:
        order.append(ctx.job.id)

    registry.register("work", work)
    ids = [store.enqueue(priority=priority) for priority in (3, 1, 2, 1)]
    async with working(store, registry, pool=PoolSettings(worker_count=1)):
        await eventually(lambda: store.states() == {"completed": 4})
    assert order == [ids[1], ids[3], ids[2], ids[0]]


async def test_queues_take_turns_however_long_they_are(store: Store) -> None:
    registry = ExecutorRegistry()
    order: list[str] = []

    async def work(ctx: JobContext, args: Any) -> None:
        order.append(ctx.job.queue)
        await asyncio.sleep(0)

    registry.register("work", work)
    with store.database.connect() as connection:
        for queue in ("one", "two", "three"):
            jobs = [store.client.job({}, tenant="t", executor="work", queue=queue) for _ in range(1_000)]
            store.client.enqueue_many(connection, jobs)
    async with working(store, registry, queues=("one", "two", "three"), pool=PoolSettings(worker_count=10)):
        await eventually(lambda: store.states() == {"completed": 3_000})
    first = Counter(order[:1_500])
    assert min(first.values()) > 300, first


async def test_several_queues_are_served_and_others_left(store: Store) -> None:
    registry = ExecutorRegistry()

    async def work(ctx: JobContext, args: Any) -> None: ...

    registry.register("work", work)
    for queue in ("one", "two", "three"):
        store.enqueue(queue=queue)
    async with working(store, registry, queues=("one", "two")):
        await eventually(lambda: store.states() == {"completed": 2, "available": 1})


async def test_stop_lets_running_jobs_end_and_hands_back_what_has_not_started(store: Store) -> None:
    registry = ExecutorRegistry()
    done: list[int] = []
    release = asyncio.Event()

    async def work(ctx: JobContext, args: Any) -> None:
        if len(done) == 300:  # by now, work is known to be fast, and a reserve of it waits in memory
            await release.wait()
        done.append(ctx.job.id)

    registry.register("work", work)
    store.enqueue_many("work", {"a": 600})
    async with working(store, registry, pool=PoolSettings(worker_count=1, graceful_timeout=LONG)) as worker:
        await eventually(lambda: len(done) == 300 and store.states().get("running", 0) > 1)
        worker.stop()
        await eventually(lambda: store.states() == {"completed": 300, "running": 1, "available": 299})
        assert len(store.workers()) == 1  # what runs, does so under a lease
        release.set()
    assert store.states() == {"completed": 301, "available": 299}
    assert {(row["state"], row["attempt"]) for row in store.rows()} == {("completed", 1), ("available", 0)}
    assert store.workers() == []
    assert sessions(store) == []


async def test_hurry_cancels_what_runs_and_hands_it_back_uncharged_even_on_its_last_attempt(store: Store) -> None:
    registry = ExecutorRegistry()
    started = asyncio.Event()
    cancelled: list[bool] = []

    async def work(ctx: JobContext, args: Any) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(ctx.cancelled)

    registry.register("work", work)
    job_id = store.enqueue(max_attempts=1)
    async with working(store, registry) as worker:
        await started.wait()
        worker.hurry()
    row = store.row(job_id)
    assert (row["state"], row["attempt"], row["errors"], cancelled) == ("available", 0, None, [True])


async def test_effects_and_completion_commit_together(store: Store) -> None:
    registry = ExecutorRegistry()
    store.execute("CREATE TABLE effects (job_id bigint)")

    def work(ctx: JobContext, args: Any) -> None:
        with psycopg.connect(store.database.dsn) as connection:
            connection.execute("INSERT INTO effects VALUES (%s)", (ctx.job.id,))
            ctx.complete_in(connection)

    async def work_async(ctx: JobContext, args: Any) -> None:
        async with await psycopg.AsyncConnection.connect(store.database.dsn) as connection:
            await connection.execute("INSERT INTO effects VALUES (%s)", (ctx.job.id,))
            await ctx.complete_in(connection)

    registry.register("work", work)
    registry.register("work async", work_async)
    ids = {store.enqueue(), store.enqueue("work async")}
    witness = Witness()
    async with working(store, registry, observe=witness):
        await eventually(lambda: store.states() == {"completed": 2})
        await eventually(lambda: sum(e.states["completed"] for e in witness.of(JobsSettled)) == 2)
    with store.database.connect() as connection:
        assert {row[0] for row in connection.execute("SELECT job_id FROM effects").fetchall()} == ids
    assert [e.stale for e in witness.of(JobsSettled) if e.stale] == []


async def test_a_lost_claim_rolls_the_effects_back(store: Store) -> None:
    registry = ExecutorRegistry()
    store.execute("CREATE TABLE effects (job_id bigint)")
    raised: list[BaseException] = []

    def work(ctx: JobContext, args: Any) -> None:
        store.execute("DELETE FROM millpond.jobs WHERE id = %s", ctx.job.id)
        try:
            with psycopg.connect(store.database.dsn) as connection:
                connection.execute("INSERT INTO effects VALUES (%s)", (ctx.job.id,))
                ctx.complete_in(connection)
        except ClaimLost as error:
            raised.append(error)
            raise

    registry.register("work", work)
    store.enqueue()
    witness = Witness()
    async with working(store, registry, observe=witness):
        await eventually(lambda: witness.of(JobsSettled))
    assert len(raised) == 1
    assert store.rows() == []
    with store.database.connect() as connection:
        assert connection.execute("SELECT count(*) FROM effects").fetchone() == (0,)


async def test_an_outcome_of_a_lost_claim_changes_nothing_and_is_counted(store: Store) -> None:
    registry = ExecutorRegistry()
    started, release = asyncio.Event(), asyncio.Event()
    witness = Witness()

    async def work(ctx: JobContext, args: Any) -> None:
        started.set()
        await release.wait()

    registry.register("work", work)
    job_id = store.enqueue()
    async with working(store, registry, observe=witness):
        await started.wait()
        store.execute("UPDATE millpond.jobs SET claim_token = claim_token + 1 WHERE id = %s", job_id)
        release.set()
        await eventually(lambda: [e for e in witness.of(JobsSettled) if e.stale == 1])
        assert store.row(job_id)["state"] == "running"


async def test_a_worker_that_lost_its_lease_drops_what_it_runs_and_goes_on(store: Store) -> None:
    registry = ExecutorRegistry()
    runs: list[int] = []
    started = asyncio.Event()
    witness = Witness()

    async def work(ctx: JobContext, args: Any) -> None:
        runs.append(ctx.attempt)
        if len(runs) == 1:
            started.set()
            await asyncio.Event().wait()

    registry.register("work", work)
    job_id = store.enqueue()
    async with working(store, registry, observe=witness, stale_timeout=1.5, beat_interval=0.1):
        await started.wait()
        (before,) = store.workers()
        store.execute("DELETE FROM millpond.workers")
        await eventually(lambda: store.row(job_id)["state"] == "completed")
        (after,) = store.workers()
    assert witness.of(LeaseLost)
    assert after["id"] != before["id"]
    assert after["number"] > before["number"]
    assert runs == [1, 2]  # the lost attempt is charged: user code had run


async def test_a_blocked_event_loop_is_not_taken_for_death(store: Store) -> None:
    registry, witness = ExecutorRegistry(), Witness()
    starts: list[int] = []

    async def block(ctx: JobContext, args: Any) -> None:
        starts.append(ctx.attempt)
        time.sleep(2.5)  # noqa: ASYNC251 - what this test is about: no beat can come from the loop for five leases

    async def work(ctx: JobContext, args: Any) -> None: ...

    registry.register("block", block)
    other = ExecutorRegistry()
    other.register("other", work)
    settings = quick(stale_timeout=0.5, beat_interval=0.05)
    with WorkerThread(store.database.dsn, other, settings=settings):  # would reap what looks dead
        job_id = store.enqueue("block")
        async with working(store, registry, observe=witness, stale_timeout=0.5, beat_interval=0.05):
            await eventually(lambda: store.row(job_id)["state"] == "completed")
    assert starts == [1]
    assert witness.of(LeaseLost) == []


async def test_exit_when_done_waits_for_retries_and_leaves_what_is_scheduled(store: Store) -> None:
    registry = ExecutorRegistry()

    async def flaky(ctx: JobContext, args: Any) -> None:
        if ctx.attempt < 3:
            raise RuntimeError("again")

    registry.register("work", flaky)
    store.enqueue_many("work", {"a": 10, "b": 10})
    store.enqueue(delay=3600)
    async with asyncio.timeout(LONG):
        await Worker(store.database.dsn, registry, settings=quick(exit_when_done=True, poll_interval=0.02)).run()
    assert store.states() == {"completed": 20, "scheduled": 1}


async def test_a_claim_whose_answer_is_lost_is_handed_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = ExecutorRegistry()
    starts: list[tuple[int, int]] = []

    async def work(ctx: JobContext, args: Any) -> None:
        starts.append((ctx.job.id, ctx.attempt))

    registry.register("work", work)
    answer = Link.run
    lost: list[int] = []

    async def lose_the_first_claim(link: Link, statement: Statement[Any]) -> Any:
        result = await answer(link, statement)
        if statement.name == "claim_jobs" and result.jobs and not lost:
            lost.extend(job.id for job in result.jobs)
            raise AnswerLost("The answer is lost.")
        return result

    monkeypatch.setattr(Link, "run", lose_the_first_claim)
    ids = store.enqueue_many("work", {"a": 5})
    async with working(store, registry):
        await eventually(lambda: store.states() == {"completed": 5})
    assert sorted(lost) == ids
    assert sorted(starts) == [(job_id, 1) for job_id in ids]


async def test_broken_sessions_heal(store: Store) -> None:
    registry = ExecutorRegistry()

    async def work(ctx: JobContext, args: Any) -> None: ...

    registry.register("work", work)
    async with working(store, registry, poll_interval=0.1):
        for n in range(1, 6):
            store.enqueue()
            await eventually(partial(store.completed, n))
            store.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name LIKE 'millpond %%' AND %s",
                True,
            )
    assert store.workers() == []


def test_a_worker_in_a_thread(store: Store) -> None:
    registry = ExecutorRegistry()
    done = threading.Event()

    def work(ctx: JobContext, args: Any) -> None:
        done.set()

    registry.register("work", work)
    thread = WorkerThread(store.database.dsn, registry, settings=quick())
    thread.start()
    store.enqueue()
    assert done.wait(LONG)
    assert thread.finished(timeout=0) is None
    assert thread.stop(LONG)
    tally = thread.finished()
    assert tally is not None
    assert tally.settled == {"completed": 1} == store.states()
    with pytest.raises(MillpondError, match="started before"):
        thread.start()


async def test_a_database_that_cannot_be_used_is_one_sentence(store: Store) -> None:
    registry = ExecutorRegistry()

    async def work(ctx: JobContext, args: Any) -> None: ...

    registry.register("work", work)
    with pytest.raises(SchemaMismatch, match="millpond migrate up"):
        await Worker(store.database.dsn, registry, settings=WorkerSettings(schema="elsewhere")).run()
    with pytest.raises(DatabaseUnreachable):
        await Worker("host=127.0.0.1 port=1 dbname=none", registry).run()
    with pytest.raises(DatabaseUnreachable):
        WorkerThread("host=127.0.0.1 port=1 dbname=none", registry).start()
    with pytest.raises(MillpondError, match="empty"):
        Worker(store.database.dsn, ExecutorRegistry())


def test_more_than_one_attempt_in_the_pool_is_warned_of(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    registry = ExecutorRegistry()
    registry.register("work", lambda ctx, args: None)
    policy = millpond.RetryPolicy(attempts=millpond.Attempts(count=3))
    Worker(store.database.dsn, registry, settings=WorkerSettings(pool=PoolSettings(retry_policy=policy)))
    assert "retry_policy.attempts.count is 3" in caplog.text
