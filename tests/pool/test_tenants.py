"""Tenants come, change, go and come back while the pool runs; and their provider may fail, or be slow."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millpond.errors import UnknownTenant
from millpond.outcome import Completed
from millpond.settings import PoolSettings
from millpond.tenancy.pool import TenantPool
from millpond.tenancy.tenants import Directory, Tenant

from .support import PATIENCE, Gate, Told, until

OFTEN = PoolSettings(worker_count=10, tenant_refresh_interval=0.01)


class Changing:
    """A provider whose answer the test sets, and which counts how often it was asked."""

    def __init__(self, *tenants: Tenant) -> None:
        self.answer: Callable[[], list[Tenant]] = lambda: list(tenants)
        self.asked = 0

    async def active(self) -> list[Tenant]:
        self.asked += 1
        return self.answer()

    async def now_says(self, *tenants: Any) -> None:
        """Change the answer, and wait until the pool has heard it."""
        self.answer = lambda: list(tenants)
        await self.is_asked_again()

    async def is_asked_again(self) -> None:
        """Wait until an answer from now on has been taken in."""
        asked = self.asked
        await until(lambda: self.asked >= asked + 2)


class Plain:
    """A provider that is a plain function, and a generator at that."""

    def __init__(self, *tenants: Tenant) -> None:
        self.tenants = tenants
        self.threads: list[str] = []

    def active(self) -> Iterator[Tenant]:
        self.threads.append(threading.current_thread().name)
        yield from self.tenants


async def test_a_changed_limit_holds_from_the_next_refresh_and_interrupts_nothing(told: Told) -> None:
    provider, gate = Changing(Tenant("a", 3)), Gate()
    async with TenantPool(OFTEN, tenants=provider) as pool:
        tasks = [told.task(gate, "a") for _ in range(8)]
        pool.submit_many(tasks)
        await gate.holds(3)
        await provider.now_says(Tenant("a", 1))
        assert pool.health().tenants["a"].limit == 1
        assert gate.inside == 3, "what runs, runs on"
        pool.cancel(tasks[0])
        pool.cancel(tasks[1])
        await gate.holds(1)
        await provider.now_says(Tenant("a", 5))
        await gate.holds(5)
        gate.open()
    assert gate.most_inside == 5


async def test_a_tenant_that_is_removed_and_returns(told: Told) -> None:
    provider, gate = Changing(Tenant("a", 1), Tenant("b", 1)), Gate()
    async with TenantPool(OFTEN, tenants=provider) as pool:
        tasks = [told.task(gate, "a") for _ in range(3)]
        pool.submit_many(tasks)
        await gate.holds(1)
        await provider.now_says(Tenant("b", 1))
        assert pool.active_tenants() == ("b",)
        with pytest.raises(UnknownTenant):
            pool.submit(told.task(gate, "a"))
        assert pool.health().tenants["a"].depth == 2, "what was taken, is kept"
        await provider.now_says(Tenant("a", 2), Tenant("b", 1))
        returned = told.task(gate, "a")
        pool.submit(returned)
        await gate.holds(2)
        gate.open()
        assert await told.all(*tasks, returned) == [Completed(1)] * 4


async def test_what_a_removed_tenant_has_queued_is_still_run(told: Told) -> None:
    provider, gate = Changing(Tenant("a", 1)), Gate()
    async with TenantPool(OFTEN, tenants=provider) as pool:
        tasks = [told.task(gate, "a") for _ in range(3)]
        pool.submit_many(tasks)
        await gate.holds(1)
        await provider.now_says()
        gate.open()
        assert await told.all(*tasks) == [Completed(1)] * 3
        assert "a" not in pool.health().tenants


async def test_a_provider_that_fails_keeps_the_last_good_list_and_is_logged_once(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    provider = Changing(Tenant("a", 2))
    gate = Gate()
    gate.open()
    async with TenantPool(OFTEN, tenants=provider) as pool:
        for error in (ConnectionError("gone"), SystemExit(1), asyncio.CancelledError()):

            def fail(error: BaseException = error) -> list[Tenant]:
                raise error

            provider.answer = fail
            await provider.is_asked_again()
            assert pool.active_tenants() == ("a",)
            failure = pool.health().provider_failure
            assert failure is not None
            assert type(error).__name__ in failure
            task = told.task(gate, "a")
            pool.submit(task)
            await told.of(task)
        assert caplog.text.count("The tenant provider failed; the last good list stays.") == 1
        await provider.now_says(Tenant("b"))
        assert pool.active_tenants() == ("b",)
        assert pool.health().provider_failure is None


async def test_a_provider_that_fails_at_the_start_fails_the_start_and_leaves_nothing(told: Told) -> None:
    provider = Changing(Tenant("a"))

    def fail() -> list[Tenant]:
        raise ConnectionError("not yet")

    good, provider.answer = provider.answer, fail
    pool = TenantPool(tenants=provider)
    with pytest.raises(ConnectionError):
        await pool.start()
    assert len(asyncio.all_tasks()) == 1
    provider.answer = good
    gate = Gate()
    gate.open()
    async with pool:
        task = told.task(gate, "a")
        pool.submit(task)
        assert await told.of(task) == Completed(1)


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_slow_provider_stops_nobody_and_is_not_asked_twice_at_once(kind: str, told: Told) -> None:
    asked = 0
    slow = threading.Event()

    def answer() -> list[Tenant]:
        return [Tenant("a")]

    class Slow:
        async def active(self) -> list[Tenant]:
            nonlocal asked
            asked += 1
            if asked > 1:
                await until(slow.is_set)
            return answer()

    class SlowAndPlain:
        def active(self) -> list[Tenant]:
            nonlocal asked
            asked += 1
            if asked > 1:
                assert slow.wait(PATIENCE)
            return answer()

    gate = Gate()
    gate.open()
    async with TenantPool(OFTEN, tenants=Slow() if kind == "async" else SlowAndPlain()) as pool:
        await until(lambda: pool.health().provider_failure)
        assert "has not answered" in str(pool.health().provider_failure)
        assert asked == 2
        task = told.task(gate, "a")
        pool.submit(task)
        assert await told.of(task) == Completed(1)
        slow.set()
        await until(lambda: pool.health().provider_failure is None)


async def test_stop_does_not_wait_for_a_slow_provider() -> None:
    slow = threading.Event()

    class Slow:
        asked = 0

        def active(self) -> list[Tenant]:
            self.asked += 1
            if self.asked > 1:
                assert slow.wait(PATIENCE)
            return []

    provider = Slow()
    async with asyncio.timeout(PATIENCE / 2):
        async with TenantPool(OFTEN, tenants=provider):
            await until(lambda: provider.asked == 2)
    slow.set()


async def test_a_provider_that_swallows_its_cancellation_is_asked_no_more_after_the_stop() -> None:
    class Swallows:
        asked = 0

        async def active(self) -> list[Tenant]:
            self.asked += 1
            if self.asked > 1:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(60)
            return []

    provider = Swallows()
    async with TenantPool(OFTEN, tenants=provider):
        await until(lambda: provider.asked == 2)
    await until(lambda: len(asyncio.all_tasks()) == 1)
    assert provider.asked == 2


async def test_a_plain_provider_runs_in_a_thread_of_its_own_and_may_be_a_generator() -> None:
    provider = Plain(Tenant("a", 3), Tenant("b", 4))
    async with TenantPool(OFTEN, tenants=provider) as pool:
        assert pool.active_tenants() == ("a", "b")
        assert pool.health().concurrency == 7
    assert set(provider.threads) == {"millpond-call"}


@pytest.mark.parametrize(("limit", "default", "expected"), [(0, None, 10), (-5, None, 10), (0, 3, 3), (2, 3, 2)])
async def test_a_limit_that_is_none_falls_back_to_the_default(
    limit: int, default: int | None, expected: int, told: Told
) -> None:
    gate = Gate()
    settings = PoolSettings(worker_count=10, default_worker_limit=default)
    async with TenantPool(settings, tenants=Plain(Tenant("a", limit))) as pool:
        pool.submit_many([told.task(gate, "a") for _ in range(20)])
        await gate.holds(expected)
        assert pool.health().tenants["a"].limit == expected
        gate.open()
    assert gate.most_inside == expected


@pytest.mark.parametrize(("limits", "expected"), [([2, 3], 5), ([8, 8], 10), ([], 0), ([0], 10)])
async def test_concurrency_is_the_sum_of_limits_but_at_most_worker_count(limits: list[int], expected: int) -> None:
    tenants = [Tenant(f"tenant-{number}", limit) for number, limit in enumerate(limits)]
    async with TenantPool(PoolSettings(worker_count=10), tenants=Plain(*tenants)) as pool:
        assert pool.health().concurrency == expected


async def test_a_bad_entry_costs_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    provider = Changing(Tenant("a"))
    async with TenantPool(OFTEN, tenants=provider) as pool:
        await provider.now_says(Tenant("a"), None, "text", Tenant(5), Tenant("w", 1, None), Tenant("b"))  # type: ignore[arg-type]
        assert pool.active_tenants() == ("a", "b")
    assert "left out" in caplog.text


async def test_a_tenant_that_does_nothing_costs_a_few_hundred_bytes() -> None:
    class Many:
        def active(self) -> Iterator[Tenant]:
            return (Tenant(f"tenant-{number:09}", number % 5) for number in range(20_000))

    settings = PoolSettings(blocked_after=None)
    async with TenantPool(settings, tenants=Plain(Tenant("warm"))):
        pass
    pool = TenantPool(settings, tenants=Many())
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        async with pool:
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / 20_000 < 300, "its name included"
    assert len(asyncio.all_tasks()) == 1


async def test_a_hundred_thousand_tenants_are_refreshed_beside_the_loop() -> None:
    tenants = [Tenant(f"tenant-{number}", number % 7) for number in range(100_000)]
    loop_was_here = asyncio.Event()
    directory = Directory(PoolSettings(worker_count=10), Plain(*tenants))
    refreshing = asyncio.ensure_future(directory.refresh())
    turns = 0
    while not refreshing.done():
        await asyncio.sleep(0.001)
        turns += 1
    loop_was_here.set()
    assert turns > 3
    assert directory.active is not None
    assert len(directory.active) == 100_000
    assert directory.slots == 10
    assert len({id(terms) for terms in directory.active.values()}) == 7, "equal terms are shared"
