"""A blocked event loop is noticed while it is blocked, named, and measured."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

from millpond.outcome import Completed
from millpond.settings import PoolSettings
from millpond.tenancy.pool import TenantPool
from millpond.tenancy.task import TaskContext

from .support import PATIENCE, Told, until

WATCHED = PoolSettings(blocked_after=0.05)


class Blocks:
    """Blocks the loop until the warning has come: the fact that it came is what we wait for."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.caplog = caplog
        self.healthy_meanwhile: bool | None = None
        self.lag_meanwhile = 0.0

    def until_noticed(self, pool: TenantPool) -> None:
        ends = time.monotonic() + PATIENCE
        while "stood still" not in self.caplog.text and time.monotonic() < ends:
            time.sleep(0.005)
        health = pool.health()
        self.healthy_meanwhile, self.lag_meanwhile = health.healthy, health.loop_lag


async def test_the_task_that_blocks_the_loop_is_named_with_its_line(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    blocks = Blocks(caplog)

    async def computes(_: TaskContext) -> str:
        blocks.until_noticed(pool)
        return "at last"

    async with TenantPool(WATCHED) as pool:
        task = told.task(computes, "acme", id=41, key="resize")
        pool.submit(task)
        assert await told.of(task) == Completed("at last")
        await until(lambda: "goes on" in caplog.text)
        assert pool.health().healthy
    first, second = caplog.records
    assert first.levelno == logging.WARNING
    assert "in task 41 (resize) of tenant 'acme'" in first.getMessage()
    assert "blocks.until_noticed(pool)" in first.getMessage()
    assert "The event loop goes on, after" in second.getMessage()
    assert blocks.healthy_meanwhile is False
    assert blocks.lag_meanwhile >= 0.05


async def test_a_task_is_named_that_blocks_after_it_has_waited(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    blocks = Blocks(caplog)

    async def computes(_: TaskContext) -> None:
        await asyncio.sleep(0.001)
        blocks.until_noticed(pool)

    async with TenantPool(WATCHED) as pool:
        task = told.task(computes, id="later")
        pool.submit(task)
        await told.of(task)
    assert "in task 'later'" in caplog.records[0].getMessage()


async def test_what_blocks_the_loop_outside_of_tasks_is_shown_too(caplog: pytest.LogCaptureFixture) -> None:
    blocks = Blocks(caplog)
    async with TenantPool(WATCHED) as pool:
        asyncio.get_running_loop().call_soon(blocks.until_noticed, pool)
        await until(lambda: blocks.healthy_meanwhile is not None)
    assert "in a callback" in caplog.records[0].getMessage()
    assert "until_noticed" in caplog.records[0].getMessage()


async def test_the_lag_of_a_loop_that_moves_is_measured_and_small() -> None:
    async with TenantPool(PoolSettings(blocked_after=0.02)) as pool:
        await until(lambda: pool.health().loop_lag > 0)
        assert pool.health().loop_lag < PATIENCE


async def test_nobody_watches_when_told_so() -> None:
    async with TenantPool(PoolSettings(blocked_after=None)) as pool:
        assert not any(thread.name == "millpond-watchdog" for thread in threading.enumerate())
        assert pool.health().loop_lag == 0.0


async def test_the_watchdog_ends_with_the_pool() -> None:
    async with TenantPool(WATCHED):
        assert any(thread.name == "millpond-watchdog" for thread in threading.enumerate())
    await until(lambda: not any(thread.name == "millpond-watchdog" for thread in threading.enumerate()))
