"""Plain functions run in threads of the pool's own: side by side, and never stopped from outside."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from millpond.errors import TaskTimeout
from millpond.outcome import Cancelled, Completed, Failed, Released
from millpond.settings import PoolSettings
from millpond.tenancy.pool import TenantPool
from millpond.tenancy.task import Cause, TaskContext

from .support import PATIENCE, Gate, ThreadGate, Told, until


async def test_plain_functions_overlap_as_far_as_there_are_slots(told: Told) -> None:
    everybody = threading.Barrier(50)
    async with TenantPool(PoolSettings(worker_count=50)) as pool:
        tasks = [told.task(lambda _: everybody.wait(PATIENCE), f"tenant-{number % 7}") for number in range(50)]
        pool.submit_many(tasks)
        outcomes = await told.all(*tasks)
    assert {outcome.result for outcome in outcomes if isinstance(outcome, Completed)} == set(range(50))


async def test_the_default_executor_is_not_used_and_may_be_full(told: Told) -> None:
    gate = threading.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1, thread_name_prefix="default"))
    sleeper = loop.run_in_executor(None, gate.wait, PATIENCE)
    async with TenantPool() as pool:
        task = told.task(lambda _: threading.current_thread().name)
        pool.submit(task)
        outcome = await told.of(task)
        gate.set()
        await sleeper
    assert outcome == Completed("millpond-thread")


async def test_threads_are_made_on_demand_and_end_with_the_pool(told: Told) -> None:
    def alive() -> int:
        return sum(thread.name == "millpond-thread" for thread in threading.enumerate())

    async with TenantPool(PoolSettings(worker_count=100)) as pool:
        assert alive() == 0
        for _ in range(50):
            task = told.task(lambda _: None)
            pool.submit(task)
            await told.of(task)
        assert 1 <= alive() <= 2
    await until(lambda: alive() == 0)


async def test_a_timed_out_thread_keeps_its_slot_is_told_so_and_its_late_result_is_dropped(told: Told) -> None:
    gate = ThreadGate()
    async with TenantPool(PoolSettings(worker_count=1)) as pool:
        late, next_one = told.task(gate, timeout=0.02), told.task(lambda _: "next")
        pool.submit_many([late, next_one])
        outcome = await told.of(late)
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, TaskTimeout)
        (context,) = gate.contexts
        assert context.cancelled
        assert context.cause is Cause.TIMEOUT
        assert next_one.id not in told.outcomes
        assert (pool.running, pool.queued) == (1, 1)
        assert pool.health().stuck == 1
        assert not pool.health().healthy, "all its slots are stuck"
        gate.open()
        assert await told.of(next_one) == Completed("next")
        assert pool.health().stuck == 0
        assert pool.health().healthy
    assert told.outcomes[late.id] is outcome


async def test_a_cancelled_thread_is_told_of_at_once_and_may_look_at_its_context(told: Told) -> None:
    ended = threading.Event()
    started = threading.Event()

    def looks(context: TaskContext) -> None:
        started.set()
        while not context.cancelled:
            time.sleep(0.001)
        ended.set()

    async with TenantPool() as pool:
        task = told.task(looks)
        pool.submit(task)
        await until(started.is_set)
        assert pool.cancel(task, "enough")
        assert told.outcomes[task.id] == Cancelled("enough")
        await until(ended.is_set)
        await until(lambda: pool.running == 0)
        assert not pool.cancel(task)


async def test_stop_ends_in_time_although_a_thread_does_not(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    gate = ThreadGate()
    pool = TenantPool(PoolSettings(graceful_timeout=0.05, cancel_timeout=0.05))
    await pool.start()
    task = told.task(gate, key="stubborn")
    pool.submit(task)
    await gate.holds(1)
    began = time.monotonic()
    await pool.stop()
    assert 0.1 <= time.monotonic() - began < 1
    assert told.outcomes == {task.id: Released("stopping", started=True)}
    assert "(stubborn) of tenant 'acme' did not end when it was cancelled" in caplog.text
    gate.open()


async def test_a_thread_that_looks_at_its_context_ends_within_the_stop(told: Told) -> None:
    started = threading.Event()

    def looks(context: TaskContext) -> str:
        started.set()
        while not context.cancelled:
            time.sleep(0.001)
        return "wound up"

    def gives_up(context: TaskContext) -> None:
        looks(context)
        raise RuntimeError("interrupted")

    async with TenantPool(PoolSettings(graceful_timeout=0, cancel_timeout=PATIENCE)) as pool:
        winds_up, gives = told.task(looks), told.task(gives_up)
        pool.submit_many([winds_up, gives])
        await until(lambda: pool.running == 2)
        await until(started.is_set)
    assert told.outcomes == {
        winds_up.id: Completed("wound up"),
        gives.id: Released("stopping", started=True),
    }


async def test_async_and_plain_tasks_share_the_slots(told: Told) -> None:
    on_loop, in_threads = Gate(), ThreadGate()
    async with TenantPool(PoolSettings(worker_count=4)) as pool:
        tasks = [told.task(on_loop if number % 2 else in_threads) for number in range(12)]
        pool.submit_many(tasks)
        await on_loop.holds(2)
        await in_threads.holds(2)
        assert (pool.running, pool.queued) == (4, 8)
        on_loop.open()
        in_threads.open()
        await told.all(*tasks)
    assert on_loop.most_inside <= 4


def test_the_interpreters_exit_does_not_wait_for_a_stuck_thread() -> None:
    program = """
        import asyncio, threading
        from millpond.settings import PoolSettings
        from millpond.tenancy.pool import TenantPool
        from millpond.tenancy.task import Task

        async def main():
            async with TenantPool(PoolSettings(graceful_timeout=0, cancel_timeout=0.1)) as pool:
                started = threading.Event()
                def stuck(context):
                    started.set()
                    threading.Event().wait()
                pool.submit(Task(tenant="a", run=stuck, complete=lambda task, outcome: print(outcome)))
                while not started.is_set():
                    await asyncio.sleep(0.01)

        asyncio.run(main())
    """
    ran = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=20)
    assert ran.returncode == 0, ran.stderr
    assert "Released(reason='stopping', started=True)" in ran.stdout


async def test_what_threads_tell_needs_no_wake_up_each(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wake-up of the loop is a system call: a flood of results is delivered in batches."""
    wake_ups = 0
    loop = asyncio.get_running_loop()
    wake = loop.call_soon_threadsafe

    def counting(*args: object) -> object:
        nonlocal wake_ups
        wake_ups += 1
        return wake(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(loop, "call_soon_threadsafe", counting)
    async with TenantPool(PoolSettings(blocked_after=None)) as pool:
        tasks = [told.task(lambda _: None) for _ in range(2_000)]
        pool.submit_many(tasks)
        await told.all(*tasks)
    assert wake_ups < 1_000


async def test_names_are_looked_up_while_all_threads_are_busy(told: Told) -> None:
    gate = ThreadGate()
    async with TenantPool(PoolSettings(worker_count=8)) as pool:
        tasks = [told.task(gate) for _ in range(20)]
        pool.submit_many(tasks)
        await gate.holds(8)
        async with asyncio.timeout(PATIENCE):
            assert await asyncio.get_running_loop().getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
        gate.open()
