"""Log handlers that raise, and streams that are closed, change nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from millpond.outcome import Completed, Outcome, Released
from millpond.settings import PoolSettings
from millpond.tenancy.logs import logger_of
from millpond.tenancy.pool import TenantPool
from millpond.tenancy.task import Task
from millpond.tenancy.tenants import Tenant

from .support import Gate, ThreadGate, Told, until


class Raises(logging.Handler):
    """What a broken log shipper does."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
        raise BrokenPipeError


@pytest.fixture
def broken() -> Iterator[Raises]:
    handler, logger = Raises(), logging.getLogger("millpond.tenancy")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


async def test_a_log_handler_that_raises_loses_no_task(told: Told, broken: Raises) -> None:
    def complete(_: Task, outcome: Outcome) -> None:
        raise ValueError(outcome)

    gate = Gate()
    gate.open()
    async with TenantPool(PoolSettings(worker_count=1)) as pool:
        tasks = [told.task(gate) for _ in range(3)]
        pool.submit_many([Task(tenant="acme", run=gate, complete=complete), *tasks])
        assert await told.all(*tasks) == [Completed(1)] * 3
    assert "callback" in broken.messages[0]


async def test_a_log_handler_that_raises_does_not_hold_up_the_stop(told: Told, broken: Raises) -> None:
    gate = ThreadGate()
    async with TenantPool(PoolSettings(graceful_timeout=0, cancel_timeout=0.02)) as pool:
        tasks = [told.task(gate), told.task(gate)]
        pool.submit_many(tasks)
        await gate.holds(2)
    assert list(told.outcomes.values()) == [Released("stopping", started=True)] * 2
    assert sum("written off" in message for message in broken.messages) == 2
    gate.open()


async def test_a_log_handler_that_raises_does_not_end_the_refreshing(broken: Raises) -> None:
    class Fails:
        asked = 0

        async def active(self) -> list[Tenant]:
            self.asked += 1
            if self.asked > 1:
                raise ConnectionError
            return []

    provider = Fails()
    async with TenantPool(PoolSettings(tenant_refresh_interval=0.01), tenants=provider):
        await until(lambda: provider.asked > 3)
    assert "provider failed" in broken.messages[0]


def test_records_name_the_line_that_logged_them(caplog: pytest.LogCaptureFixture) -> None:
    logger_of(__name__).warning("here: %s", 1)
    logger_of(__name__).error("and here", exc_info=ValueError())
    assert [record.funcName for record in caplog.records] == ["test_records_name_the_line_that_logged_them"] * 2
    assert caplog.records[0].getMessage() == "here: 1"
