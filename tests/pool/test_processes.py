"""CPU-bound work runs in child processes: what ends one is charged to its own task alone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from millpond.errors import ProcessDied, TaskTimeout
from millpond.outcome import Cancelled, Completed, Failed, Released
from millpond.settings import PoolSettings
from millpond.tenancy.pool import TenantPool
from millpond.tenancy.task import Task, TaskContext

from . import work
from .support import Told, until

PROCESSES = PoolSettings(process_count=2)


def in_process(told: Told, run: Callable[[TaskContext], object], *, timeout: float | None = None) -> Task:
    return told.task(run, isolation="process", timeout=timeout, key="child")


def is_dead(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def is_reaped(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


async def pid_of_the_child(pool: TenantPool, told: Told) -> int:
    task = in_process(told, work.pid)
    pool.submit(task)
    outcome = await told.of(task)
    assert isinstance(outcome, Completed)
    assert isinstance(outcome.result, int)
    return outcome.result


async def test_functions_run_in_children_that_stay(told: Told) -> None:
    async with TenantPool(PROCESSES) as pool:
        pids = {await pid_of_the_child(pool, told) for _ in range(5)}
        assert len(pids) == 1
        assert os.getpid() not in pids
        described = in_process(told, work.context_of, timeout=60)
        pool.submit(described)
        outcome = await told.of(described)
        assert isinstance(outcome, Completed)
        assert isinstance(outcome.result, tuple)
        assert outcome.result[:5] == ("acme", "child", described.id, 1, False)
        assert 0 < outcome.result[5] - time.monotonic() <= 60
        awaited = in_process(told, work.from_a_coroutine)
        pool.submit(awaited)
        assert await told.of(awaited) == Completed("awaited")
    for pid in pids:
        await until(partial(is_dead, pid))


async def test_whatever_ends_a_child_is_charged_to_its_own_task(told: Told) -> None:
    async with TenantPool(PROCESSES) as pool:
        fatal = {
            work.killed: -signal.SIGKILL,
            work.crashes: -signal.SIGSEGV,
            work.exits: 3,
        }
        for run, code in fatal.items():
            neighbours = [in_process(told, work.pid) for _ in range(4)]
            task = in_process(told, run)
            pool.submit_many([*neighbours[:2], task, *neighbours[2:]])
            outcome = await told.of(task)
            assert isinstance(outcome, Failed)
            assert isinstance(outcome.error, ProcessDied)
            assert outcome.error.exit_code == code
            assert all(isinstance(each, Completed) for each in await told.all(*neighbours))


async def test_a_child_killed_while_it_sends_a_large_answer_leaves_the_others_alone(told: Told, tmp_path: Path) -> None:
    """With a pipe shared between children, half an answer would be taken for the beginning of the next."""
    async with TenantPool(PROCESSES) as pool:
        for number in range(5):
            victim = in_process(told, work.Started(tmp_path / str(number), size=50_000_000))
            neighbour = in_process(told, work.pid)
            pool.submit_many([victim, neighbour])
            await until((tmp_path / str(number)).exists)
            await until((tmp_path / str(number)).read_text)
            os.kill(int((tmp_path / str(number)).read_text().split()[0]), signal.SIGKILL)
            assert isinstance(await told.of(neighbour), Completed)
            outcome = await told.of(victim)
            assert isinstance(outcome, Completed) or isinstance(outcome.error, ProcessDied)  # type: ignore[union-attr]


async def test_idle_children_that_are_killed_are_replaced(told: Told) -> None:
    async with TenantPool(PROCESSES) as pool:
        for _ in range(3):
            pid = await pid_of_the_child(pool, told)
            await until(lambda: pool.running == 0)
            os.kill(pid, signal.SIGKILL)
            await until(partial(is_reaped, pid))  # with all its threads, so that its end of the pipe is closed


@pytest.mark.parametrize("how", ["timeout", "cancel", "stop"])
async def test_a_child_that_should_end_is_killed_with_all_it_has_started(how: str, told: Told, tmp_path: Path) -> None:
    async with TenantPool(PoolSettings(process_count=2, graceful_timeout=0)) as pool:
        task = in_process(told, work.Started(tmp_path / "pids"), timeout=1.0 if how == "timeout" else None)
        pool.submit(task)
        await until(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text())
        child, grandchild = map(int, (tmp_path / "pids").read_text().split())
        if how == "cancel":
            assert pool.cancel(task, "enough")
        if how != "stop":
            await told.of(task)
            await until(lambda: pool.running == 0)
    match told.outcomes[task.id]:
        case Failed(error):
            assert how == "timeout"
            assert isinstance(error, TaskTimeout)
            assert error.seconds == pytest.approx(1.0)
        case Cancelled("enough"):
            assert how == "cancel"
        case Released("stopping", started=True):
            assert how == "stop"
        case other:
            pytest.fail(repr(other))
    for pid in (child, grandchild):
        await until(partial(is_dead, pid))


async def test_what_children_raise_is_raised_here_with_their_traceback(told: Told) -> None:
    async with TenantPool(PROCESSES) as pool:
        expected: dict[Callable[[TaskContext], object], type[BaseException]] = {
            work.raises: KeyError,
            work.leaves: SystemExit,
            work.raises_what_cannot_be_pickled: RuntimeError,
            work.returns_what_cannot_be_pickled: AttributeError,
        }
        for run, kind in expected.items():
            task = in_process(told, run)
            pool.submit(task)
            outcome = await told.of(task)
            assert isinstance(outcome, Failed)
            assert type(outcome.error) is kind
            assert any("In the child process:\nTraceback" in note for note in outcome.error.__notes__)


async def test_what_cannot_be_sent_fails_its_task_alone(told: Told) -> None:
    async with TenantPool(PROCESSES) as pool:
        child = await pid_of_the_child(pool, told)
        task = in_process(told, lambda _: None)
        pool.submit(task)
        outcome = await told.of(task)
        assert isinstance(outcome, Failed)
        assert "pickle" in str(outcome.error).lower()
        assert await pid_of_the_child(pool, told) == child


async def test_the_time_of_a_task_begins_when_there_is_a_child_for_it(told: Told) -> None:
    async with TenantPool(PoolSettings(process_count=1)) as pool:
        first = in_process(told, work.pid)
        pool.submit(first)
        await told.of(first)
        blocks, waits = in_process(told, work.sleeps, timeout=0.6), in_process(told, work.pid, timeout=0.5)
        pool.submit_many([blocks, waits])
        outcome = await told.of(blocks)
        assert isinstance(outcome, Failed)
        assert isinstance(await told.of(waits), Completed)


async def test_a_task_that_waits_for_a_child_can_be_cancelled_and_stopped(told: Told, tmp_path: Path) -> None:
    async with TenantPool(PoolSettings(process_count=1, graceful_timeout=0)) as pool:
        blocks = in_process(told, work.Started(tmp_path / "pid"))
        cancelled, stopped = (in_process(told, work.pid) for _ in range(2))
        pool.submit(blocks)
        await until((tmp_path / "pid").exists)
        pool.submit_many([cancelled, stopped])
        await until(lambda: pool.running == 3)
        assert pool.cancel(cancelled)
        assert await told.of(cancelled) == Cancelled("cancelled")
    assert told.outcomes[blocks.id] == Released("stopping", started=True)
    assert told.outcomes[stopped.id] == Released("stopping", started=False)
