"""A completion that the executor writes itself counts as one only where it went through."""

from __future__ import annotations

import contextlib
from typing import Any

import psycopg
import pytest

from millpond import ClaimLost, ExecutorRegistry, JobContext
from millpond.events import JobsSettled
from millpond.testing.database import Database
from tests.worker.support import Store, Witness, eventually, working


@pytest.fixture
def store(database: Database) -> Store:
    return Store(database)


async def work_async(ctx: JobContext, store: Store) -> None:
    async with await psycopg.AsyncConnection.connect(store.database.dsn) as connection:
        await ctx.complete_in(connection)


async def work(ctx: JobContext, store: Store) -> None:
    with psycopg.connect(store.database.dsn) as connection:
        ctx.complete_in(connection)


async def work_unawaited(ctx: JobContext, store: Store) -> None:
    async with await psycopg.AsyncConnection.connect(store.database.dsn) as connection:
        ctx.complete_in(connection).close()  # of the job that is gone, it never gets to know


@pytest.mark.parametrize("complete", [work, work_async, work_unawaited])
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
async def test_a_claim_that_is_lost_is_counted_whatever_the_executor_makes_of_it(store: Store, complete: Any) -> None:
    registry = ExecutorRegistry()

    async def executor(ctx: JobContext, args: Any) -> None:
        store.execute("DELETE FROM millpond.jobs WHERE id = %s", ctx.job.id)
        with contextlib.suppress(ClaimLost):
            await complete(ctx, store)

    registry.register("work", executor)
    store.enqueue()
    witness = Witness()
    async with working(store, registry, observe=witness):
        await eventually(lambda: witness.of(JobsSettled))
    assert [event.stale for event in witness.of(JobsSettled)] == [1]


@pytest.mark.parametrize("complete", [work, work_async])
async def test_a_completion_that_went_through_is_no_lost_claim(store: Store, complete: Any) -> None:
    registry = ExecutorRegistry()

    async def executor(ctx: JobContext, args: Any) -> None:
        await complete(ctx, store)

    registry.register("work", executor)
    store.enqueue()
    witness = Witness()
    async with working(store, registry, observe=witness):
        await eventually(lambda: witness.of(JobsSettled))
    assert [event.stale for event in witness.of(JobsSettled)] == [0]
    assert store.states() == {"completed": 1}
