"""Nobody starves, and no slot is idle while somebody may use it."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from millpond.outcome import Outcome
from millpond.settings import PoolSettings
from millpond.tenancy.pool import TenantPool
from millpond.tenancy.task import Task, TaskContext
from millpond.tenancy.tenants import Tenant

from .support import Gate, Told


class Listed:
    """A provider."""

    def __init__(self, *tenants: Tenant) -> None:
        self.tenants = tenants

    async def active(self) -> tuple[Tenant, ...]:
        return self.tenants


class Log:
    """Writes down whose tasks started, in order."""

    def __init__(self) -> None:
        self.tenants: list[str] = []

    async def __call__(self, context: TaskContext) -> None:
        self.tenants.append(context.task.tenant)
        await asyncio.sleep(0)


async def test_a_small_tenant_does_not_wait_for_a_big_ones_backlog(told: Told) -> None:
    log = Log()
    async with TenantPool(PoolSettings(worker_count=5, task_queue_size=200_000, tenant_queue_size=100_000)) as pool:
        pool.submit_many([Task(tenant="big", run=log, complete=_nothing) for _ in range(100_000)])
        await asyncio.sleep(0)
        small = [told.task(log, "small") for _ in range(10)]
        before = len(log.tenants)
        pool.submit_many(small)
        await told.all(*small)
        meanwhile = log.tenants[before:]
        assert meanwhile.count("big") <= 40, "turn about, beside the slots that were taken"
        pool.hurry()


async def test_a_tenant_at_its_limit_blocks_nobody(told: Told) -> None:
    gate, log = Gate(), Log()
    async with TenantPool(PoolSettings(worker_count=3), tenants=Listed(Tenant("a", 2), Tenant("b"))) as pool:
        blocked = [told.task(gate, "a") for _ in range(1_000)]
        pool.submit_many(blocked)
        await gate.holds(2)
        others = [told.task(log, "b") for _ in range(50)]
        pool.submit_many(others)
        await told.all(*others)
        assert gate.most_inside == 2
        gate.open()


async def test_a_lone_tenant_uses_the_whole_pool(told: Told) -> None:
    gate = Gate()
    async with TenantPool(PoolSettings(worker_count=20)) as pool:
        pool.submit_many([told.task(gate, "alone") for _ in range(50)])
        await gate.holds(20)
        assert pool.running == 20
        gate.open()


async def test_slots_are_shared_by_weight(told: Told) -> None:
    log = Log()
    tenants = Listed(Tenant("heavy", weight=3), Tenant("light", weight=1))
    async with TenantPool(PoolSettings(worker_count=1), tenants=tenants) as pool:
        tasks = [told.task(log, tenant) for tenant in ("heavy", "light") for _ in range(300)]
        pool.submit_many(tasks)
        await told.all(*tasks)
    for length in range(1, 400):
        taken = Counter(log.tenants[:length])
        assert abs(taken["heavy"] / 3 - taken["light"]) <= 1


async def test_as_many_turns_whatever_the_number_of_tenants(told: Told) -> None:
    log = Log()
    async with TenantPool(PoolSettings(worker_count=7)) as pool:
        tasks = [told.task(log, f"tenant-{number % 100}") for number in range(1_000)]
        pool.submit_many(sorted(tasks, key=lambda task: task.tenant))
        await told.all(*tasks)
    for start in range(0, 1_000, 100):
        assert set(Counter(log.tenants[start : start + 100]).values()) == {1}, "each its turn, in every round"


@pytest.mark.parametrize("seconds", [0.002])
async def test_a_newcomer_starts_within_a_task_of_every_tenant_before_it(seconds: float, told: Told) -> None:
    async def takes_a_while(_: TaskContext) -> None:
        await asyncio.sleep(seconds)

    loop = asyncio.get_running_loop()
    started: list[float] = []

    async def newcomer(_: TaskContext) -> None:
        started.append(loop.time())

    async with TenantPool(PoolSettings(worker_count=4)) as pool:
        pool.submit_many([Task(tenant="noisy", run=takes_a_while, complete=_nothing) for _ in range(2_000)])
        await asyncio.sleep(seconds * 3)
        submitted = loop.time()
        task = told.task(newcomer, "quiet")
        pool.submit(task)
        await told.of(task)
        pool.hurry()
    assert started[0] - submitted < 0.15


def _nothing(_: Task, __: Outcome) -> None:
    """Nobody wants to know."""
