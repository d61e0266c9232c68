"""The health snapshot says what the pool holds, as a whole and tenant by tenant."""

from __future__ import annotations

import threading

import pytest

from millpond.settings import PoolSettings
from millpond.tenancy.health import Health, TenantHealth
from millpond.tenancy.pool import TenantPool
from millpond.tenancy.tenants import Tenant

from .support import Gate, Told


class Listed:
    """A provider."""

    def __init__(self, *tenants: Tenant) -> None:
        self.tenants = tenants

    async def active(self) -> tuple[Tenant, ...]:
        return self.tenants


async def test_a_snapshot_of_a_busy_pool(told: Told) -> None:
    gate = Gate()
    settings = PoolSettings(worker_count=5, task_queue_size=100, tenant_queue_size=10)
    tenants = Listed(Tenant("busy", 2), Tenant("calm", 1), Tenant("idle", 1))
    pool = TenantPool(settings, tenants=tenants)
    before = pool.health()
    assert (before.healthy, before.stopping, before.running) == (False, False, 0)
    async with pool:
        pool.submit_many([told.task(gate, "busy") for _ in range(6)])
        pool.submit(told.task(gate, "calm"))
        await gate.holds(3)
        health = pool.health()
        assert health == Health(
            healthy=True,
            stopping=False,
            queue_depth=4,
            queue_capacity=100,
            worker_count=5,
            concurrency=4,
            running=3,
            stuck=0,
            loop_lag=health.loop_lag,
            provider_failure=None,
            tenants=health.tenants,
        )
        assert dict(health.tenants) == {
            "busy": TenantHealth(depth=4, capacity=10, limit=2, running=2),
            "calm": TenantHealth(depth=0, capacity=10, limit=1, running=1),
            "idle": TenantHealth(depth=0, capacity=10, limit=1, running=0),
        }
        assert len(health.tenants) == 3
        with pytest.raises(KeyError):
            health.tenants["nobody"]
        assert pool.active_tenants() == ("busy", "calm", "idle")
        gate.open()
    after = pool.health()
    assert (after.healthy, after.stopping, after.running, after.queue_depth) == (False, False, 0, 0)


async def test_without_a_provider_those_that_hold_something_are_shown(told: Told) -> None:
    gate = Gate()
    async with TenantPool(PoolSettings(worker_count=1)) as pool:
        pool.submit_many([told.task(gate, "a"), told.task(gate, "b")])
        await gate.holds(1)
        assert dict(pool.health().tenants) == {
            "a": TenantHealth(depth=0, capacity=2_000, limit=1, running=1),
            "b": TenantHealth(depth=1, capacity=2_000, limit=1, running=0),
        }
        assert pool.active_tenants() == ("a", "b")
        gate.open()


async def test_any_thread_may_look_while_tasks_come_and_go(told: Told) -> None:
    gate = Gate()
    gate.open()
    failures: list[BaseException] = []
    done = threading.Event()

    def look() -> None:
        try:
            while not done.is_set():
                assert len(dict(pool.health().tenants)) <= 500
        except BaseException as error:
            failures.append(error)

    async with TenantPool() as pool:
        thread = threading.Thread(target=look)
        thread.start()
        for _ in range(5):
            tasks = [told.task(gate, f"tenant-{number}") for number in range(500)]
            pool.submit_many(tasks)
            await told.all(*tasks)
        done.set()
        thread.join()
    assert failures == []
