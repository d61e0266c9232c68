"""What became of a task is told once, and truly, whatever its code does."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import weakref
from collections.abc import Awaitable, Callable, Generator

import pytest

from millpond.executors import Isolation
from millpond.outcome import Cancelled, Completed, Failed, Outcome
from millpond.settings import PoolSettings
from millpond.tenancy.pool import TenantPool
from millpond.tenancy.task import Task, TaskContext

from .support import Gate, Told, turn


class Unshowable(Exception):
    """Cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


def _recurse() -> None:
    _recurse()


ERRORS: list[Callable[[], BaseException]] = [
    ValueError,
    SystemExit,
    KeyboardInterrupt,
    GeneratorExit,
    StopIteration,
    StopAsyncIteration,
    asyncio.CancelledError,
    TimeoutError,
    MemoryError,
    functools.partial(BaseExceptionGroup, "several", [KeyboardInterrupt(), ValueError()]),
    Unshowable,
]


@pytest.mark.parametrize("isolation", ["loop", "thread"])
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("error", ERRORS)
async def test_whatever_a_task_raises_fails_that_task_alone(
    error: Callable[[], BaseException], waits: bool, isolation: Isolation, told: Told
) -> None:
    gate = Gate()

    async def fails_on_loop(_: TaskContext) -> None:
        if waits:
            await asyncio.sleep(0)
        raise error()

    def fails_in_thread(_: TaskContext) -> None:
        raise error()

    async with TenantPool() as pool:
        neighbours = [told.task(gate) for _ in range(9)]
        pool.submit_many(neighbours)
        await gate.holds(9)
        task = told.task(fails_on_loop if isolation == "loop" else fails_in_thread)
        pool.submit(task)
        outcome = await told.of(task)
        assert isinstance(outcome, Failed)
        if error is StopIteration and isolation == "loop":
            assert isinstance(outcome.error, RuntimeError), "what Python makes of it in a coroutine"
        else:
            assert type(outcome.error) is type(error())
        gate.open()
        assert await told.all(*neighbours) == [Completed(1)] * 9


@pytest.mark.parametrize("isolation", ["loop", "thread"])
async def test_endless_recursion_fails_the_task(isolation: Isolation, told: Told) -> None:
    async def on_loop(_: TaskContext) -> None:
        _recurse()

    def in_thread(_: TaskContext) -> None:
        _recurse()

    async with TenantPool() as pool:
        task = told.task(on_loop if isolation == "loop" else in_thread)
        pool.submit(task)
        outcome = await told.of(task)
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, RecursionError)


async def test_the_traceback_begins_in_the_users_code(told: Told) -> None:
    async def at_once(_: TaskContext) -> None:
        raise ValueError

    async def later(_: TaskContext) -> None:
        await asyncio.sleep(0)
        raise ValueError

    def in_thread(_: TaskContext) -> None:
        raise ValueError

    async with TenantPool() as pool:
        for run in (at_once, later, in_thread):
            task = told.task(run)
            pool.submit(task)
            outcome = await told.of(task)
            assert isinstance(outcome, Failed)
            assert outcome.error.__traceback__ is not None
            assert outcome.error.__traceback__.tb_frame.f_code is run.__code__


class Awaitable_:  # noqa: N801
    """Neither a coroutine nor a future."""

    def __await__(self) -> Generator[object, object, str]:
        yield from asyncio.sleep(0).__await__()
        return "awaited"


async def test_anything_that_can_be_awaited_runs_on_the_loop(told: Told) -> None:
    class Callable_:  # noqa: N801
        async def __call__(self, _: TaskContext) -> str:
            return "object"

        async def method(self, _: TaskContext) -> str:
            return "method"

    async def with_more(more: str, _: TaskContext) -> str:
        return more

    loop = asyncio.get_running_loop()
    runs: list[tuple[Callable[[TaskContext], Awaitable[object] | object], Isolation | None, object]] = [
        (Callable_(), None, "object"),
        (Callable_().method, None, "method"),
        (functools.partial(with_more, "partial"), None, "partial"),
        (functools.partial(Callable_()), None, "object"),
        (lambda _: Awaitable_(), "loop", "awaited"),
        (lambda _: loop.create_task(asyncio.sleep(0, "task")), "loop", "task"),
        (lambda _: "not awaitable at all", "loop", "not awaitable at all"),
    ]
    async with TenantPool() as pool:
        for run, isolation, expected in runs:
            task = told.task(run, isolation=isolation)
            assert task.isolation == "loop"
            pool.submit(task)
            assert await told.of(task) == Completed(expected)


async def test_a_coroutine_that_appears_in_a_thread_fails_with_the_remedy(told: Told) -> None:
    async def hidden() -> None: ...

    async with TenantPool() as pool:
        task = told.task(lambda _: hidden())
        pool.submit(task)
        outcome = await told.of(task)
        assert isinstance(outcome, Failed)
        with pytest.raises(TypeError, match='isolation="loop"'):
            raise outcome.error


async def test_a_callback_that_raises_is_logged_and_changes_nothing(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    def complete(_: Task, outcome: Outcome) -> None:
        raise SystemExit(outcome)

    async with TenantPool(PoolSettings(worker_count=1)) as pool:
        pool.submit(Task(tenant="acme", run=Gate(), complete=complete, key="broken", id=17))
        await turn(3)
        pool.cancel(17)
        task = told.task(Gate())
        pool.submit(task)
        await turn(3)
        pool.cancel(task)
        assert await told.of(task) == Cancelled("cancelled")
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "task 17 (broken) of tenant 'acme'" in record.getMessage()


async def test_exceptions_are_let_go_with_their_outcome(told: Told) -> None:
    class Error(Exception): ...

    async def fails(_: TaskContext) -> None:
        await asyncio.sleep(0)
        raise Error

    def fails_in_thread(_: TaskContext) -> None:
        raise Error

    gc.collect()
    gc.disable()
    try:
        async with TenantPool() as pool:
            for run in (fails, fails_in_thread):
                task = told.task(run)
                pool.submit(task)
                outcome = await told.of(task)
                assert isinstance(outcome, Failed)
                error = weakref.ref(outcome.error)
                told.outcomes.clear()
                del outcome
                await asyncio.sleep(0.01)
                assert error() is None
    finally:
        gc.enable()
