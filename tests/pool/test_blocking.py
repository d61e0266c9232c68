"""The pool for programs without an event loop: any thread may use it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from millpond.errors import PoolStopping, TaskTimeout, TenantQueueFull, UnknownTenant
from millpond.outcome import Completed, Outcome
from millpond.settings import PoolSettings
from millpond.tenancy.blocking import BlockingTenantPool
from millpond.tenancy.task import Task, TaskContext
from millpond.tenancy.tenants import Tenant

from .support import PATIENCE


class Listed:
    """A provider, for a program without a loop."""

    def __init__(self, *tenants: Tenant) -> None:
        self.tenants = tenants

    def active(self) -> Iterator[Tenant]:
        yield from self.tenants


def holding(condition: Callable[[], bool]) -> bool:
    """Wait for a fact, without a loop."""
    ends = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < ends:
        time.sleep(0.001)
    return condition()


def test_tasks_are_run_and_completed_on_the_pools_thread() -> None:
    told: concurrent.futures.Future[tuple[Outcome, str]] = concurrent.futures.Future()
    with BlockingTenantPool() as pool:

        def complete(_: Task, outcome: Outcome) -> None:
            told.set_result((outcome, threading.current_thread().name))

        pool.submit(Task(tenant="acme", run=lambda context: context.attempt, complete=complete))
        assert told.result(PATIENCE) == (Completed(1), "millpond-pool")


def test_a_future_brings_what_a_function_returns_or_raises() -> None:
    async def doubled(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    with BlockingTenantPool(PoolSettings(process_count=1)) as pool:
        assert pool.call("acme", doubled, 21).result(PATIENCE) == 42
        assert pool.call("acme", divmod, 7, 2).result(PATIENCE) == (3, 1)
        assert pool.call("acme", os.getpid, isolation="process").result(PATIENCE) != os.getpid()
        with pytest.raises(ZeroDivisionError):
            pool.call("acme", divmod, 1, 0).result(PATIENCE)
        with pytest.raises(TaskTimeout):
            pool.call("acme", asyncio.sleep, 60, timeout=0.02).result(PATIENCE)


def test_drained_waits_until_all_tasks_are_told_of() -> None:
    heard: list[Outcome] = []
    pool = BlockingTenantPool(PoolSettings(worker_count=2))
    pool.drained()
    with pool:
        pool.submit_many([Task(tenant="acme", run=_nothing, complete=lambda _, o: heard.append(o)) for _ in range(50)])
        pool.drained()
        assert heard == [Completed()] * 50
        with pytest.raises(RuntimeError, match="own thread"):
            pool.call("acme", _drains, pool).result(PATIENCE)


def test_cancelling_the_future_cancels_the_task() -> None:
    with BlockingTenantPool(PoolSettings(worker_count=1)) as pool:
        running = pool.call("acme", asyncio.sleep, 60)
        queued = pool.call("acme", asyncio.sleep, 60)
        assert holding(lambda: pool.health().running == 1)
        for future in (queued, running):
            assert future.cancel()
        assert holding(lambda: pool.health().running == 0)
        concurrent.futures.wait([running, queued], PATIENCE)
        assert pool.call("acme", divmod, 7, 2).result(PATIENCE) == (3, 1)


def test_stop_leaves_cancelled_futures() -> None:
    with BlockingTenantPool(PoolSettings(worker_count=1, graceful_timeout=0)) as pool:
        futures = [pool.call("acme", asyncio.sleep, 60) for _ in range(3)]
    done, _ = concurrent.futures.wait(futures, PATIENCE)
    assert len(done) == 3
    assert all(future.cancelled() for future in futures)


def test_refusals_are_raised_where_submit_was_called() -> None:
    gate = threading.Event()
    settings = PoolSettings(tenant_queue_size=1)
    with BlockingTenantPool(settings, tenants=Listed(Tenant("acme", 1))) as pool:
        first, second = (pool.call("acme", gate.wait, PATIENCE) for _ in range(2))
        with pytest.raises(TenantQueueFull):
            pool.call("acme", gate.wait)
        with pytest.raises(UnknownTenant):
            pool.call("other", gate.wait)
        room = pool.room()
        assert room.tenants == {"acme": 0}
        assert pool.active_tenants() == ("acme",)
        ((task, error),) = pool.submit_many([Task(tenant="acme", run=_nothing, complete=_ignore)])
        assert isinstance(error, TenantQueueFull)
        assert not pool.cancel(task)
        gate.set()
        assert first.result(PATIENCE)
        assert second.result(PATIENCE)
    with pytest.raises(PoolStopping):
        pool.submit(task)
    assert [type(error) for _, error in pool.submit_many([task])] == [PoolStopping]
    assert not pool.cancel(task)
    assert pool.room().slots == 0


def test_many_threads_use_one_pool_at_once() -> None:
    with BlockingTenantPool() as pool:

        def use(number: int) -> int:
            futures = [pool.call(f"tenant-{number}", divmod, number, 1) for _ in range(50)]
            return sum(future.result(PATIENCE)[0] for future in futures)

        with concurrent.futures.ThreadPoolExecutor(20) as users:
            assert list(users.map(use, range(20))) == [50 * number for number in range(20)]


def test_callbacks_may_use_the_pool_and_stop_it() -> None:
    heard: list[Outcome] = []
    pool = BlockingTenantPool()
    pool.start()

    def complete(task: Task, outcome: Outcome) -> None:
        heard.append(outcome)
        if len(heard) < 3:
            pool.submit(task)
        else:
            pool.stop()

    pool.submit(Task(tenant="acme", run=_nothing, complete=complete))
    assert holding(lambda: len(heard) == 3)
    pool.stop()


def test_a_provider_that_fails_at_the_start_fails_the_start_and_the_next_may_succeed() -> None:
    class Sometimes:
        works = False

        def active(self) -> list[Tenant]:
            if not self.works:
                raise ConnectionError("not yet")
            return [Tenant("acme")]

    provider = Sometimes()
    pool = BlockingTenantPool(tenants=provider)
    with pytest.raises(ConnectionError):
        pool.start()
    provider.works = True
    with pool:
        assert pool.call("acme", divmod, 7, 2).result(PATIENCE) == (3, 1)
        with pytest.raises(RuntimeError, match="started already"):
            pool.start()


def test_a_stop_waits_for_the_grace_and_hurry_ends_it() -> None:
    pool = BlockingTenantPool(PoolSettings(graceful_timeout=60))
    pool.start()
    future = pool.call("acme", asyncio.sleep, 60)
    assert holding(lambda: pool.health().running == 1)
    stopping = threading.Thread(target=pool.stop)
    stopping.start()
    assert holding(lambda: pool.health().stopping)
    with pytest.raises(PoolStopping):
        pool.submit(Task(tenant="acme", run=_nothing, complete=_ignore))
    assert not future.done()
    pool.hurry()
    stopping.join(PATIENCE)
    assert not stopping.is_alive()
    assert future.cancelled()


def test_fifty_threads_start_use_and_stop_one_pool_as_they_like() -> None:
    pool = BlockingTenantPool(PoolSettings(worker_count=4, graceful_timeout=0, blocked_after=None))
    unexpected: list[BaseException] = []

    def meddle(number: int) -> None:
        for _ in range(20):
            try:
                match number % 4:
                    case 0:
                        pool.start()
                    case 1:
                        pool.stop()
                    case 2:
                        pool.call("acme", divmod, 7, 2)
                    case 3:
                        pool.room()
                        pool.health()
            except (PoolStopping, RuntimeError):
                pass
            except BaseException as error:
                unexpected.append(error)

    threads = [threading.Thread(target=meddle, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE * 3)
    assert not any(thread.is_alive() for thread in threads), "something hangs"
    pool.stop()
    assert unexpected == []


async def _drains(pool: BlockingTenantPool) -> None:
    pool.drained()


async def _nothing(_: TaskContext) -> None:
    """Done at once."""


def _ignore(_: Task, __: Outcome) -> None:
    """Nobody wants to know."""
