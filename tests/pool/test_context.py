"""Each task runs in a fresh contextvars.Context: nothing leaks from one to another, or from whoever made the pool."""

from __future__ import annotations

import asyncio
import contextvars
import random
from contextvars import ContextVar

import pytest

from millpond.executors import Isolation
from millpond.outcome import Completed, Outcome
from millpond.settings import PoolSettings
from millpond.tenancy.pool import TenantPool
from millpond.tenancy.task import Task, TaskContext

from .support import Told, turn

WHO: ContextVar[str] = ContextVar("who", default="nobody")


async def test_a_task_sees_nothing_of_its_submitter_nor_of_the_pools_maker(told: Told) -> None:
    async def look(_: TaskContext) -> str:
        return WHO.get()

    WHO.set("maker")
    async with TenantPool() as pool:
        WHO.set("submitter")
        tasks = [told.task(look), told.task(lambda _: WHO.get())]
        pool.submit_many(tasks)
        assert await told.all(*tasks) == [Completed("nobody")] * 2


@pytest.mark.parametrize("isolation", ["loop", "thread"])
@pytest.mark.parametrize("seed", range(5))
async def test_no_task_sees_what_another_has_set_in_any_interleaving(
    seed: int, isolation: Isolation, told: Told
) -> None:
    chance = random.Random(seed)

    async def on_loop(context: TaskContext) -> tuple[str, str]:
        first = WHO.get()
        WHO.set(context.task.tenant)
        for _ in range(chance.randrange(4)):
            await turn()
            assert WHO.get() == context.task.tenant
            child = asyncio.create_task(_whose())
            assert await child == context.task.tenant, "what it starts is its own"
        return first, WHO.get()

    def in_thread(context: TaskContext) -> tuple[str, str]:
        first = WHO.get()
        WHO.set(context.task.tenant)
        return first, WHO.get()

    async with TenantPool(PoolSettings(worker_count=5)) as pool:
        tasks = [told.task(on_loop if isolation == "loop" else in_thread, f"t{number}") for number in range(200)]
        pool.submit_many(tasks)
        outcomes = await told.all(*tasks)
    assert outcomes == [Completed(("nobody", f"t{number}")) for number in range(200)]


async def test_what_a_task_starts_keeps_its_context_when_the_task_has_ended(told: Told) -> None:
    heard: list[str] = []

    async def starts_something(context: TaskContext) -> None:
        WHO.set(context.task.tenant)
        asyncio.get_running_loop().call_soon(lambda: heard.append(WHO.get()))

    async with TenantPool(PoolSettings(worker_count=1)) as pool:
        tasks = [told.task(starts_something, f"t{number}") for number in range(3)]
        pool.submit_many(tasks)
        await told.all(*tasks)
        await turn(2)
    assert heard == ["t0", "t1", "t2"]


async def test_callbacks_run_in_no_tasks_context(told: Told) -> None:
    seen: list[str] = []

    async def sets(context: TaskContext) -> None:
        WHO.set(context.task.tenant)
        await turn()

    def complete(task: Task, outcome: Outcome) -> None:
        seen.append(WHO.get())
        told(task, outcome)

    async with TenantPool() as pool:
        task = told.task(sets)
        task.complete = complete
        pool.submit(task)
        await told.of(task)
    assert seen == ["nobody"]


async def test_context_managers_hold_over_waits(told: Told) -> None:
    """A token of a variable may only be used in the context that gave it."""

    async def resets(_: TaskContext) -> str:
        token = WHO.set("somebody")
        await turn(2)
        WHO.reset(token)
        contextvars.copy_context()
        return WHO.get()

    async with TenantPool() as pool:
        tasks = [told.task(resets) for _ in range(10)]
        pool.submit_many(tasks)
        assert await told.all(*tasks) == [Completed("nobody")] * 10


async def _whose() -> str:
    await turn()
    return WHO.get()
