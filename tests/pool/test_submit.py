"""What submit takes, what it refuses, and that it never waits."""

from __future__ import annotations

import asyncio

import pytest

from millpond.errors import PoolQueueFull, PoolStopping, SubmitError, TenantQueueFull, UnknownTenant
from millpond.executors.threads import in_thread
from millpond.outcome import Completed
from millpond.settings import PoolSettings
from millpond.tenancy.pool import TenantPool
from millpond.tenancy.task import Task, TaskContext
from millpond.tenancy.tenants import Tenant

from .support import Gate, Told, turn


class Fixed:
    """A provider that always says the same."""

    def __init__(self, *tenants: Tenant) -> None:
        self.tenants = tenants

    async def active(self) -> tuple[Tenant, ...]:
        return self.tenants


async def nothing(_: TaskContext) -> None:
    """Done at once."""


async def test_a_task_is_run_and_its_outcome_told_on_the_loop(told: Told) -> None:
    async def answer(context: TaskContext) -> tuple[str, int, bool]:
        return context.task.tenant, context.attempt, context.cancelled

    async with TenantPool() as pool:
        task = told.task(answer, "acme")
        pool.submit(task)
        assert task.id not in told.outcomes, "submit runs nothing itself"
        assert await told.of(task) == Completed(("acme", 1, False))


async def test_a_tenant_that_the_provider_does_not_list_is_refused(told: Told) -> None:
    async with TenantPool(tenants=Fixed(Tenant("acme"))) as pool:
        with pytest.raises(UnknownTenant, match="'other'"):
            pool.submit(told.task(nothing, "other"))
        task = told.task(nothing, "acme")
        pool.submit(task)
        await told.of(task)
    assert len(told.outcomes) == 1


async def test_a_full_tenant_queue_refuses_that_tenant_alone(told: Told) -> None:
    gate = Gate()
    async with TenantPool(PoolSettings(tenant_queue_size=2), tenants=Fixed(Tenant("a", 1), Tenant("b", 1))) as pool:
        for _ in range(3):  # one that runs and two that wait
            pool.submit(told.task(gate, "a"))
        with pytest.raises(TenantQueueFull, match="'a' has 2 tasks waiting"):
            pool.submit(told.task(gate, "a"))
        await gate.holds(1)
        with pytest.raises(TenantQueueFull):
            pool.submit(told.task(gate, "a"))
        pool.submit(told.task(gate, "b"))
        gate.open()
    assert len(told.outcomes) == 4


async def test_a_full_pool_queue_refuses_everybody(told: Told) -> None:
    gate = Gate()
    async with TenantPool(PoolSettings(worker_count=2, task_queue_size=3)) as pool:
        for number in range(5):
            pool.submit(told.task(gate, f"tenant-{number}"))
        with pytest.raises(PoolQueueFull, match="3 tasks waiting"):
            pool.submit(told.task(gate, "another"))
        gate.open()
    assert len(told.outcomes) == 5


async def test_a_pool_that_is_not_running_refuses(told: Told) -> None:
    pool = TenantPool()
    with pytest.raises(PoolStopping, match="between start and stop"):
        pool.submit(told.task(nothing))
    gate = Gate()
    async with pool:
        task = told.task(gate)
        pool.submit(task)
        await gate.holds(1)
        pool.hurry(10.0)
        with pytest.raises(PoolStopping):
            pool.submit(told.task(nothing))
        gate.open()
        await told.of(task)
    with pytest.raises(PoolStopping):
        pool.submit(told.task(nothing))
    assert len(told.outcomes) == 1


def test_the_four_refusals_are_distinct_and_have_one_root() -> None:
    kinds = [UnknownTenant, TenantQueueFull, PoolQueueFull, PoolStopping]
    for kind in kinds:
        assert issubclass(kind, SubmitError)
        assert [other for other in kinds if issubclass(kind, other)] == [kind]


async def test_of_many_tasks_those_that_fit_are_taken_and_the_others_come_back_with_their_errors(told: Told) -> None:
    gate = Gate()
    async with TenantPool(PoolSettings(tenant_queue_size=1), tenants=Fixed(Tenant("a", 1), Tenant("b", 1))) as pool:
        tasks = [told.task(gate, tenant) for tenant in ("a", "a", "a", "nobody", "b")]
        refused = pool.submit_many(tasks)
        assert [(task, type(error)) for task, error in refused] == [
            (tasks[2], TenantQueueFull),
            (tasks[3], UnknownTenant),
        ]
        gate.open()
    assert set(told.outcomes) == {tasks[0].id, tasks[1].id, tasks[4].id}


async def test_room_is_exactly_what_submit_takes(told: Told) -> None:
    gate = Gate()
    settings = PoolSettings(worker_count=3, task_queue_size=6, tenant_queue_size=2, default_worker_limit=2)
    async with TenantPool(settings) as pool:
        assert (pool.room().slots, pool.room().tenants, pool.room().default) == (9, {}, 4)
        pool.submit(told.task(gate, "a"))
        await gate.holds(1)
        assert (pool.room().slots, pool.room().tenants) == (8, {"a": 3})
        for tenant in ("a", "b"):
            for _ in range(pool.room().tenants.get(tenant, pool.room().default)):
                pool.submit(told.task(gate, tenant))
            with pytest.raises(TenantQueueFull):
                pool.submit(told.task(gate, tenant))
        assert (pool.room().slots, pool.room().tenants) == (1, {"a": 0, "b": 0})
        pool.submit(told.task(gate, "c"))
        assert pool.room().slots == 0
        with pytest.raises(PoolQueueFull):
            pool.submit(told.task(gate, "c"))
        await gate.holds(3)
        assert (pool.running, pool.queued) == (3, 6)
        gate.open()
    assert pool.room().slots == 0
    assert len(told.outcomes) == 9


async def test_what_a_tenant_held_is_forgotten_with_its_last_task(told: Told) -> None:
    async with TenantPool() as pool:
        tasks = [told.task(nothing, f"tenant-{number}") for number in range(100)]
        pool.submit_many(tasks)
        assert len(pool.room().tenants) == 100
        await told.all(*tasks)
        assert pool.room().tenants == {}
        assert pool.active_tenants() == ()


async def test_another_thread_is_refused_with_the_remedy(told: Told) -> None:
    async with TenantPool() as pool:
        with pytest.raises(RuntimeError, match="call_soon_threadsafe"):
            await in_thread(lambda: pool.submit(told.task(nothing)))
        task = told.task(nothing)
        loop = asyncio.get_running_loop()
        await in_thread(lambda: loop.call_soon_threadsafe(pool.submit, task))
        assert await told.of(task) == Completed()


async def test_a_task_whose_id_cannot_be_looked_up_leaves_nothing(told: Told) -> None:
    async with TenantPool() as pool:
        with pytest.raises(TypeError, match="unhashable"):
            pool.submit(told.task(nothing, id=[]))
        assert pool.room().tenants == {}
        assert pool.queued == 0


async def test_tasks_that_share_an_id_are_each_run_and_told_and_the_id_means_the_last() -> None:
    gate = Gate()
    ended: list[str] = []

    def named(name: str) -> Task:
        return Task(tenant="a", run=gate, complete=lambda _, outcome: ended.append(name), id="same")

    async with TenantPool() as pool:
        pool.submit(named("first"))
        pool.submit(named("second"))
        await gate.holds(2)
        assert pool.cancel("same")
        await gate.holds(1)
        assert ended == ["second"]
        assert not pool.cancel("same")
        gate.open()
    assert ended == ["second", "first"]


async def test_a_task_may_be_submitted_again_by_its_own_callback(told: Told) -> None:
    rounds = []

    def again(task: Task, _: object) -> None:
        rounds.append(task)
        if len(rounds) < 1_000:
            pool.submit(task)
        else:
            told(task, Completed())

    async with TenantPool(PoolSettings(worker_count=1)) as pool:
        task = Task(tenant="a", run=nothing, complete=again, id="again")
        pool.submit(task)
        await told.of(task)


async def test_a_flood_of_short_tasks_leaves_the_loop_its_turns(told: Told) -> None:
    async with TenantPool(PoolSettings(tenant_queue_size=10_000)) as pool:
        tasks = [told.task(nothing) for _ in range(10_000)]
        pool.submit_many(tasks)
        turns = 0
        while len(told.outcomes) < len(tasks):
            await turn()
            turns += 1
    assert turns >= 5, "ten thousand tasks take more than five bursts of a millisecond"
