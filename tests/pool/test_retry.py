"""The pool's own retries: full jitter, a slot given back while waiting, and none at all when the store retries."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import TaskTimeout, TenantQueueFull
from millpond.outcome import Cancelled, Completed, Failed
from millpond.retry import full_jitter
from millpond.settings import Attempts, PoolSettings, RetryPolicy
from millpond.tenancy.pool import TenantPool
from millpond.tenancy.task import TaskContext

from .support import Gate, ThreadGate, Told, until


def retrying(count: int, *, min_delay: float = 0.0, max_delay: float = 60.0, worker_count: int = 4) -> PoolSettings:
    attempts = Attempts(count=count, min_delay=min_delay, max_delay=max_delay)
    return PoolSettings(worker_count=worker_count, retry_policy=RetryPolicy(attempts=attempts), tenant_queue_size=3)


class Flaky:
    """Fails so many times, then returns the number of its attempt."""

    def __init__(self, failures: int) -> None:
        self.contexts: list[TaskContext] = []
        self.failures = failures

    async def __call__(self, context: TaskContext) -> int:
        self.contexts.append(context)
        if context.attempt <= self.failures:
            raise ConnectionError(context.attempt)
        return context.attempt


async def test_a_failed_task_is_tried_again_and_told_of_once(told: Told) -> None:
    flaky = Flaky(2)
    async with TenantPool(retrying(5)) as pool:
        task = told.task(flaky)
        pool.submit(task)
        assert await told.of(task) == Completed(3)
    assert [context.attempt for context in flaky.contexts] == [1, 2, 3]
    assert len({id(context) for context in flaky.contexts}) == 3, "each attempt has a context of its own"


async def test_the_last_error_is_told_when_all_attempts_have_failed(told: Told) -> None:
    flaky = Flaky(99)
    async with TenantPool(retrying(3)) as pool:
        task = told.task(flaky)
        pool.submit(task)
        outcome = await told.of(task)
    assert isinstance(outcome, Failed)
    assert outcome.error.args == (3,)
    assert len(flaky.contexts) == 3


async def test_one_attempt_leaves_retries_to_the_store(told: Told) -> None:
    flaky = Flaky(1)
    async with TenantPool() as pool:
        task = told.task(flaky)
        pool.submit(task)
        assert isinstance(await told.of(task), Failed)
        assert pool.queued == 0
    assert len(flaky.contexts) == 1


@given(attempt=st.integers(1, 2_000), base=st.floats(1e-3, 1e6), cap=st.floats(0, 1e6), draw=st.floats(0, 1))
def test_waits_are_within_full_jitter(attempt: int, base: float, cap: float, draw: float) -> None:
    wait = full_jitter(attempt, base, cap, lambda low, high: low + draw * (high - low))
    ceiling = min(cap, base * 2.0 ** min(attempt - 1, 1_000))
    assert 0 <= wait <= ceiling
    assert full_jitter(attempt, base, cap, lambda _, high: high) == pytest.approx(ceiling)


async def test_the_pool_asks_for_a_wait_between_zero_and_the_cap_doubled_each_time(told: Told) -> None:
    asked: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        asked.append((low, high))
        return 0.0

    async with TenantPool(retrying(6, min_delay=1, max_delay=5), uniform=uniform) as pool:
        task = told.task(Flaky(99))
        pool.submit(task)
        await told.of(task)
    assert asked == [(0, 1), (0, 2), (0, 4), (0, 5), (0, 5)]


async def test_a_waiting_retry_gives_its_slot_back_but_counts_as_queued(told: Told) -> None:
    async with TenantPool(retrying(2, min_delay=60, worker_count=1), uniform=lambda _, high: high) as pool:
        flaky = Flaky(1)
        waiting = told.task(flaky)
        pool.submit(waiting)
        await until(lambda: len(flaky.contexts) == 1 and pool.queued == 1)
        assert pool.running == 0
        other = told.task(Flaky(0))
        pool.submit(other)
        assert await told.of(other) == Completed(1)
        gate = Gate()
        pool.submit_many([told.task(gate) for _ in range(3)])
        with pytest.raises(TenantQueueFull):
            pool.submit(told.task(gate))
        await gate.holds(1)
        assert (pool.queued, pool.running) == (3, 1)
        assert pool.health().tenants["acme"].depth == 3
        assert pool.cancel(waiting, "given up")
        assert told.outcomes[waiting.id] == Cancelled("given up")
        gate.open()


async def test_a_retry_comes_when_its_wait_is_over(told: Told) -> None:
    async with TenantPool(retrying(2, min_delay=0.05), uniform=lambda _, high: high) as pool:
        task = told.task(Flaky(1))
        began = time.monotonic()
        pool.submit(task)
        assert await told.of(task) == Completed(2)
        assert time.monotonic() - began >= 0.05


async def test_a_retry_that_waits_when_the_pool_stops_has_failed(told: Told) -> None:
    async with TenantPool(retrying(9, min_delay=60), uniform=lambda _, high: high) as pool:
        flaky = Flaky(99)
        task = told.task(flaky)
        pool.submit(task)
        await until(lambda: len(flaky.contexts) == 1 and pool.queued == 1)
    outcome = told.outcomes[task.id]
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ConnectionError)


async def test_what_fails_while_the_pool_stops_is_not_tried_again(told: Told) -> None:
    gate = Gate()

    async def fails(context: TaskContext) -> None:
        await gate(context)
        raise ConnectionError

    async with TenantPool(retrying(9)) as pool:
        task = told.task(fails)
        pool.submit(task)
        await gate.holds(1)
        pool.hurry(10.0)
        gate.open()
    assert isinstance(told.outcomes[task.id], Failed)
    assert len(gate.seen) == 1


async def test_a_cancelled_task_is_not_tried_again(told: Told) -> None:
    gate = Gate()
    async with TenantPool(retrying(9)) as pool:
        task = told.task(gate)
        pool.submit(task)
        await gate.holds(1)
        pool.cancel(task)
        assert await told.of(task) == Cancelled("cancelled")
    assert len(gate.seen) == 1


async def test_a_timed_out_attempt_is_tried_again(told: Told) -> None:
    async def too_slow_at_first(context: TaskContext) -> int:
        if context.attempt == 1:
            await asyncio.sleep(60)
        return context.attempt

    async with TenantPool(retrying(2)) as pool:
        task = told.task(too_slow_at_first, timeout=0.02)
        pool.submit(task)
        assert await told.of(task) == Completed(2)


async def test_a_timed_out_thread_is_tried_again_beside_the_thread_that_does_not_end(told: Told) -> None:
    gate = ThreadGate()

    def first_sticks(context: TaskContext) -> str | int:
        return gate(context) if context.attempt == 1 else context.attempt

    async with TenantPool(retrying(2, worker_count=2)) as pool:
        task = told.task(first_sticks, timeout=0.05)
        pool.submit(task)
        assert await told.of(task) == Completed(2)
        assert (pool.running, pool.health().stuck) == (1, 1)
        (stuck,) = gate.contexts
        assert stuck.cancelled
        gate.open()
        await until(lambda: pool.running == 0)


async def test_a_thread_that_times_out_on_its_last_attempt_has_failed(told: Told) -> None:
    gate = ThreadGate()
    async with TenantPool(retrying(2)) as pool:
        task = told.task(gate, timeout=0.02)
        pool.submit(task)
        outcome = await told.of(task)
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, TaskTimeout)
        assert len(gate.contexts) == 2
        gate.open()
