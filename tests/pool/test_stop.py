"""Stopping: refuse, hand back, drain, cancel, write off. In bounded time, and always once."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import time

import pytest

from millpond.errors import PoolStopping
from millpond.outcome import Completed, Released
from millpond.settings import PoolSettings
from millpond.tenancy.pool import TenantPool
from millpond.tenancy.task import TaskContext

from .support import Gate, ThreadGate, Told, turn, until


class Stubborn:
    """Refuses to be cancelled, until it is let go."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.let_go = False

    async def __call__(self, _: TaskContext) -> None:
        while not self.let_go:
            try:
                await asyncio.sleep(60)
            except BaseException:
                self.cancelled += 1


async def test_what_waits_is_handed_back_at_once_and_what_runs_may_end(told: Told) -> None:
    gate = Gate()
    pool = TenantPool(PoolSettings(worker_count=2))
    await pool.start()
    running, queued = [told.task(gate) for _ in range(2)], [told.task(gate) for _ in range(3)]
    pool.submit_many([*running, *queued])
    await gate.holds(2)
    stopping = asyncio.ensure_future(pool.stop())
    await turn()
    assert told.outcomes == {task.id: Released("stopping", started=False) for task in queued}
    assert pool.health().stopping
    assert not pool.health().healthy
    with pytest.raises(PoolStopping):
        pool.submit(told.task(gate))
    await turn(5)
    assert not stopping.done()
    gate.open()
    await stopping
    assert [told.outcomes[task.id] for task in running] == [Completed(1)] * 2
    assert not pool.health().stopping


async def test_after_the_grace_everything_that_runs_is_cancelled(told: Told) -> None:
    gate = Gate()
    began = time.monotonic()
    async with TenantPool(PoolSettings(graceful_timeout=0.1, cancel_timeout=60)) as pool:
        tasks = [told.task(gate) for _ in range(3)]
        pool.submit_many(tasks)
        await gate.holds(3)
    assert 0.1 <= time.monotonic() - began < 2
    assert [told.outcomes[task.id] for task in tasks] == [Released("stopping", started=True)] * 3
    assert all(context.cancelled for context in gate.seen)


async def test_cancelled_tasks_have_time_to_clean_up(told: Told) -> None:
    cleaned = []

    async def cleans_up(_: TaskContext) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            cleaned.append(True)

    async with TenantPool(PoolSettings(graceful_timeout=0, cancel_timeout=10)) as pool:
        pool.submit(told.task(cleans_up))
        await until(lambda: pool.running == 1)
        await turn(2)
    assert cleaned == [True]


async def test_a_task_that_refuses_to_end_is_written_off_in_time(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    stubborn, gate = Stubborn(), ThreadGate()
    pool = TenantPool(PoolSettings(graceful_timeout=0.05, cancel_timeout=0.05))
    await pool.start()
    on_loop, in_thread = told.task(stubborn, key="loop"), told.task(gate, key="thread")
    pool.submit_many([on_loop, in_thread])
    await gate.holds(1)
    began = time.monotonic()
    await pool.stop()
    assert 0.1 <= time.monotonic() - began < 2
    assert told.outcomes == {task.id: Released("stopping", started=True) for task in (on_loop, in_thread)}
    assert caplog.text.count("is written off") == 2
    assert stubborn.cancelled == 1, "it was asked, and then left where it stands"
    gate.open()


async def test_hurry_ends_the_grace_of_a_stop_that_waits(told: Told) -> None:
    gate = Gate()
    pool = TenantPool(PoolSettings(graceful_timeout=60))
    await pool.start()
    pool.submit(told.task(gate))
    await gate.holds(1)
    stopping = asyncio.ensure_future(pool.stop())
    await turn(3)
    assert not stopping.done()
    pool.hurry()
    async with asyncio.timeout(2):
        await stopping
    assert list(told.outcomes.values()) == [Released("stopping", started=True)]


async def test_hurry_alone_begins_a_stop_without_grace(told: Told) -> None:
    gate = Gate()
    async with TenantPool(PoolSettings(worker_count=1, graceful_timeout=60)) as pool:
        running, queued = told.task(gate), told.task(gate)
        pool.submit_many([running, queued])
        await gate.holds(1)
        pool.hurry()
        assert told.outcomes == {queued.id: Released("stopping", started=False)}
        assert await told.of(running) == Released("stopping", started=True)


@pytest.mark.parametrize(("second", "ends"), [(0.0, True), (0.05, True), (120.0, False), (None, False)])
async def test_a_second_stop_can_only_shorten_the_first(second: float | None, ends: bool, told: Told) -> None:
    gate = Gate()
    pool = TenantPool(PoolSettings(graceful_timeout=60))
    await pool.start()
    pool.submit(told.task(gate))
    await gate.holds(1)
    first = asyncio.ensure_future(pool.stop())
    again = asyncio.ensure_future(pool.stop(second))
    done, _ = await asyncio.wait([first], timeout=2 if ends else 0.1)
    assert bool(done) == ends
    gate.open()
    await asyncio.gather(first, again)


async def test_a_second_stop_does_not_lengthen_the_first(told: Told) -> None:
    gate = Gate()
    pool = TenantPool()
    await pool.start()
    pool.submit(told.task(gate))
    await gate.holds(1)
    async with asyncio.timeout(5):
        await asyncio.gather(pool.stop(0.05), pool.stop(60))
    assert list(told.outcomes.values()) == [Released("stopping", started=True)]


async def test_drained_waits_until_all_that_was_taken_is_told_of(told: Told) -> None:
    gate = Gate()
    pool = TenantPool(PoolSettings(worker_count=1))
    await pool.drained()
    async with pool:
        await pool.drained()
        tasks = [told.task(gate) for _ in range(3)]
        pool.submit_many(tasks)
        first, second = (asyncio.ensure_future(pool.drained()) for _ in range(2))
        await gate.holds(1)
        await turn(3)
        assert not first.done()
        gate.open()
        await asyncio.gather(first, second)
        assert len(told.outcomes) == 3


async def test_a_stop_ends_the_wait_of_those_who_wait_for_the_drain(told: Told) -> None:
    gate = Gate()
    async with TenantPool(PoolSettings(graceful_timeout=0)) as pool:
        pool.submit(told.task(gate))
        waiting = asyncio.ensure_future(pool.drained())
        await gate.holds(1)
    async with asyncio.timeout(1):
        await waiting


async def test_stop_may_be_called_before_the_start_and_after_the_end() -> None:
    pool = TenantPool()
    await pool.stop()
    pool.hurry()
    async with pool:
        await pool.stop()
        await pool.stop()
    await pool.stop()


async def test_a_stopped_pool_can_be_started_again(told: Told) -> None:
    pool, gate = TenantPool(), Gate()
    gate.open()
    for _ in range(3):
        async with pool:
            with pytest.raises(RuntimeError, match="started already"):
                await pool.start()
            task = told.task(gate)
            pool.submit(task)
            assert await told.of(task) == Completed(1)


async def test_whoever_waits_for_the_stop_may_give_up_and_the_stop_goes_on(told: Told) -> None:
    gate = Gate()
    pool = TenantPool(PoolSettings(graceful_timeout=60))
    await pool.start()
    task = told.task(gate)
    pool.submit(task)
    await gate.holds(1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await pool.stop()
    assert not told.outcomes
    gate.open()
    assert await told.of(task) == Completed(1)
    await pool.stop()


async def test_a_task_may_stop_its_own_pool(told: Told) -> None:
    async def stops(_: TaskContext) -> None:
        await pool.stop(0)

    pool = TenantPool()
    await pool.start()
    task = told.task(stops)
    pool.submit(task)
    assert await told.of(task) == Released("stopping", started=True)
    await pool.stop()


async def test_callbacks_may_ask_the_pool_anything_while_it_stops(told: Told) -> None:
    gate = Gate()
    seen: list[object] = []

    def meddles(task: object, outcome: object) -> None:
        seen.append(outcome)
        pool.cancel("other")
        pool.room()
        pool.health()
        pool.hurry()
        with pytest.raises(PoolStopping):
            pool.submit(told.task(gate))

    async with TenantPool(PoolSettings(worker_count=1)) as pool:
        meddling = [told.task(gate, id=name) for name in ("first", "second", "third")]
        for task in meddling:
            task.complete = meddles
        pool.submit_many([told.task(gate), *meddling, told.task(gate, id="other")])
        await gate.holds(1)
    assert len(seen) == 3
    assert len(told.outcomes) == 2


async def test_fifty_starts_and_stops_at_once_leave_nothing(told: Told) -> None:
    async def round_trip() -> None:
        pool = TenantPool(PoolSettings(worker_count=2, graceful_timeout=0))
        gate = Gate()
        async with pool:
            pool.submit_many([told.task(gate), told.task(gate), told.task(lambda _: None)])
            await turn(2)

    for _ in range(5):
        await asyncio.gather(*(round_trip() for _ in range(50)))
    assert len(told.outcomes) == 750


PROGRAM = """
    import asyncio, sys
    from millpond.settings import PoolSettings
    from millpond.tenancy.pool import TenantPool
    from millpond.tenancy.task import Task

    async def stubborn(context):
        while True:
            try:
                await asyncio.sleep(60)
            except BaseException:
                continue

    async def main():
        settings = PoolSettings(graceful_timeout=0.05, cancel_timeout=0.05)
        async with TenantPool(settings) as pool:
            pool.submit(Task(tenant="a", run=stubborn, complete=lambda task, outcome: print(outcome)))
            await asyncio.sleep(0.01)

    {run}
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_program_ends_although_a_task_never_does(loop: str) -> None:
    """Neither closing the loop nor the interpreter's cleaning up may wake what was left."""
    run = "asyncio.run(main())" if loop == "asyncio" else "import uvloop; uvloop.run(main())"
    program = textwrap.dedent(PROGRAM).format(run=run)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "Released(reason='stopping', started=True)\n"
