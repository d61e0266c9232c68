"""Why an attempt ended: by its timeout, by a cancel, by a stop, or by itself. Also when two happen at once."""

from __future__ import annotations

import asyncio
import random
from typing import Literal, TypeAlias

import pytest

from millpond.errors import TaskTimeout
from millpond.outcome import Cancelled, Completed, Failed, Outcome, Released
from millpond.settings import PoolSettings
from millpond.tenancy.pool import TenantPool
from millpond.tenancy.task import Cause, TaskContext

from .support import Gate, Told, turn

Event: TypeAlias = Literal["timeout", "cancel", "stop", "own error", "own cancel", "own timeout", "return"]


async def test_the_four_causes_are_told_apart(told: Told) -> None:
    async def own_timeout(_: TaskContext) -> None:
        async with asyncio.timeout(0):
            await asyncio.sleep(10)

    async def own_cancel(_: TaskContext) -> None:
        child = asyncio.ensure_future(asyncio.sleep(10))
        await turn()
        child.cancel()
        await child

    async with TenantPool() as pool:
        timed_out = told.task(Gate(), timeout=0.01)
        cancelled, stopped = told.task(Gate()), told.task(Gate())
        own = told.task(own_timeout), told.task(own_cancel)
        pool.submit_many([timed_out, cancelled, stopped, *own])
        own_timed_out, own_cancelled = await told.all(*own)
        timeout = await told.of(timed_out)
        assert pool.cancel(cancelled, "enough")
        pool.hurry()
    assert isinstance(timeout, Failed)
    assert isinstance(timeout.error, TaskTimeout)
    assert timeout.error.seconds == pytest.approx(0.01)
    assert told.outcomes[cancelled.id] == Cancelled("enough")
    assert told.outcomes[stopped.id] == Released("stopping", started=True)
    assert isinstance(own_timed_out, Failed)
    assert type(own_timed_out.error) is TimeoutError
    assert isinstance(own_cancelled, Failed)
    assert type(own_cancelled.error) is asyncio.CancelledError


@pytest.mark.parametrize("cause", list(Cause))
async def test_the_running_code_sees_why_it_should_end(cause: Cause, told: Told) -> None:
    gate = Gate()
    async with TenantPool(PoolSettings(graceful_timeout=0)) as pool:
        task = told.task(gate, timeout=0.01 if cause is Cause.TIMEOUT else 60)
        pool.submit(task)
        await gate.holds(1)
        (context,) = gate.seen
        assert not context.cancelled
        assert context.deadline is not None
        if cause is Cause.CANCEL:
            pool.cancel(task)
        if cause is not Cause.STOP:
            await told.of(task)
    assert context.cancelled
    assert context.cause is cause


async def test_code_that_ends_well_although_it_was_cancelled_is_completed(told: Told) -> None:
    async def finishes(_: TaskContext) -> str:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            await turn()
        return "done"

    async with TenantPool() as pool:
        task = told.task(finishes)
        pool.submit(task)
        await turn(3)
        assert pool.cancel(task)
        assert await told.of(task) == Completed("done")


@pytest.mark.parametrize(("cause", "expected"), [("timeout", Failed), ("cancel", Cancelled), ("stop", Released)])
async def test_code_that_turns_a_cancellation_into_another_error_ends_for_the_same_cause(
    cause: Event, expected: type, told: Told
) -> None:
    async def wraps(_: TaskContext) -> None:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError as error:
            raise ConnectionError("interrupted") from error

    async with TenantPool(PoolSettings(graceful_timeout=0)) as pool:
        task = told.task(wraps, timeout=0.01 if cause == "timeout" else None)
        pool.submit(task)
        await turn(3)
        if cause == "cancel":
            pool.cancel(task)
        if cause != "stop":
            await told.of(task)
    outcome = told.outcomes[task.id]
    assert isinstance(outcome, expected)
    if isinstance(outcome, Failed):
        assert isinstance(outcome.error, TaskTimeout)
        assert isinstance(outcome.error.__cause__, ConnectionError)


async def test_a_cancel_stands_against_a_timeout_that_has_begun(told: Told) -> None:
    cleaning = asyncio.Event()

    async def slow_to_end(_: TaskContext) -> None:
        try:
            await asyncio.sleep(10)
        finally:
            cleaning.set()
            await turn(5)

    async with TenantPool() as pool:
        task = told.task(slow_to_end, timeout=0.01)
        pool.submit(task)
        await cleaning.wait()
        assert pool.cancel(task, "enough")
        assert await told.of(task) == Cancelled("enough")


async def test_a_timeout_stands_against_a_stop_that_comes_after_it(told: Told) -> None:
    cleaning = asyncio.Event()

    async def slow_to_end(_: TaskContext) -> None:
        try:
            await asyncio.sleep(10)
        finally:
            cleaning.set()
            await asyncio.sleep(10)

    async with TenantPool() as pool:
        task = told.task(slow_to_end, timeout=0.01)
        pool.submit(task)
        await cleaning.wait()
        pool.hurry()
    outcome = told.outcomes[task.id]
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, TaskTimeout)


async def test_a_second_cancel_does_not_disturb_the_cleaning_up(told: Told) -> None:
    cleaned = []

    async def cleans_up(_: TaskContext) -> None:
        try:
            await asyncio.sleep(10)
        finally:
            await turn(5)
            cleaned.append(True)

    async with TenantPool() as pool:
        task = told.task(cleans_up)
        pool.submit(task)
        await turn(3)
        for _ in range(4):
            assert pool.cancel(task)
            await turn()
        assert await told.of(task) == Cancelled("cancelled")
    assert cleaned == [True]


async def test_what_has_not_started_never_does_once_cancelled(told: Told) -> None:
    gate = Gate()
    async with TenantPool(PoolSettings(worker_count=1)) as pool:
        running, queued = told.task(gate), told.task(gate)
        pool.submit_many([running, queued])
        assert pool.cancel(queued.id, "not wanted")
        assert told.outcomes == {queued.id: Cancelled("not wanted")}, "told here and now"
        assert not pool.cancel(queued)
        assert not pool.cancel("never heard of")
        await gate.holds(1)
        gate.open()
        await told.of(running)
        assert not pool.cancel(running)
    assert len(gate.seen) == 1


async def test_a_task_may_cancel_itself(told: Told) -> None:
    async def gives_up(context: TaskContext) -> None:
        assert pool.cancel(context.task, "by itself")
        await asyncio.sleep(10)

    async with TenantPool() as pool:
        task = told.task(gives_up)
        pool.submit(task)
        assert await told.of(task) == Cancelled("by itself")


def _self_cancel_and_return(context: TaskContext) -> None:
    current = asyncio.current_task()
    assert current is not None
    current.cancel()


async def test_a_cancellation_that_comes_too_late_hits_nobody_else(told: Told) -> None:
    """Left over by the code that ended, it must not reach what runs next in the same place."""

    async def leaves_one(context: TaskContext) -> None:
        _self_cancel_and_return(context)

    async def leaves_one_later(context: TaskContext) -> None:
        await turn()
        _self_cancel_and_return(context)

    async def waits(_: TaskContext) -> str:
        await turn(2)
        current = asyncio.current_task()
        assert current is not None
        assert current.cancelling() == 0
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            group.create_task(turn(2))
        return "undisturbed"

    async with TenantPool(PoolSettings(worker_count=1)) as pool:
        for nuisance in (leaves_one, leaves_one_later):
            for _ in range(20):
                victim = told.task(waits)
                pool.submit_many([told.task(nuisance), victim])
                assert await told.of(victim) == Completed("undisturbed")


async def test_timeouts_and_task_groups_work_inside(told: Told) -> None:
    async def uses_them(_: TaskContext) -> list[str]:
        heard = []
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(10)
        except TimeoutError:
            heard.append("timeout")
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_fails())
                await asyncio.sleep(10)
        except* ValueError:
            heard.append("group")
        heard.append(await asyncio.wait_for(asyncio.sleep(0, "waited for"), 1))
        return heard

    async with TenantPool() as pool:
        tasks = [told.task(uses_them) for _ in range(50)]
        pool.submit_many(tasks)
        assert await told.all(*tasks) == [Completed(["timeout", "group", "waited for"])] * 50


async def _fails() -> None:
    raise ValueError


# ── two at once ──

ASKS: tuple[Event, ...] = ("timeout", "cancel")
OWN: tuple[Event, ...] = ("own error", "own cancel", "own timeout", "return")


def _is_true(outcome: Outcome, cause: Cause | None, events: tuple[Event, ...]) -> bool:
    """Whether it is what the pool had asked for, or, if it had not asked, what the code did by itself."""
    match outcome, cause:
        case Completed(), _:
            return "return" in events
        case Cancelled(), Cause.CANCEL:
            return "cancel" in events
        case Released(started=True), Cause.STOP:
            return True
        case Failed(error), Cause.TIMEOUT:
            return "timeout" in events and type(error) is TaskTimeout
        case Failed(error), None:
            kinds = {ValueError: "own error", asyncio.CancelledError: "own cancel", TimeoutError: "own timeout"}
            return kinds[type(error)] in events
        case _:
            return False


@pytest.mark.parametrize("seed", range(10))
async def test_any_two_at_once_give_the_outcome_of_one_of_them(seed: int) -> None:
    """A thousand pairs for each seed: two events in one turn of the loop or a few callbacks apart, often a stop too."""
    chance = random.Random(seed)
    for _ in range(125):
        told = Told()
        pool = TenantPool(PoolSettings(graceful_timeout=0, worker_count=8))
        await pool.start()
        pairs = [_Pair(pool, told, number, chance) for number in range(8)]
        for pair in pairs:
            await pair.collide()
        await turn(chance.choice([0, 1, 5]))
        await pool.stop()
        assert told.each_once()
        for pair in pairs:
            outcome = told.outcomes[pair.number]
            if pair.context is None:
                assert outcome in (Cancelled("cancelled"), Released("stopping", started=False))
            else:
                assert _is_true(outcome, pair.context.cause, pair.events), (pair.events, pair.context.cause, outcome)


class _Pair:
    """A task to which two things happen."""

    def __init__(self, pool: TenantPool, told: Told, number: int, chance: random.Random) -> None:
        self.number = number
        self.context: TaskContext | None = None
        ask = chance.choice(ASKS)
        self.events = (ask, chance.choice([event for event in (*ASKS, *OWN) if event != ask]))
        self._pool = pool
        self._chance = chance
        self._inner: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        pool.submit(told.task(self._run, id=number, timeout=60))

    async def collide(self) -> None:
        await turn(self._chance.choice([0, 1, 2, 3]))
        for event in self._chance.sample(self.events, 2):
            await turn(self._chance.choice([0, 0, 1, 2]))
            asyncio.get_running_loop().call_soon(self._happen, event)

    async def _run(self, context: TaskContext) -> None:
        self.context = context
        match await self._inner:
            case "own error":
                raise ValueError
            case "own timeout":
                raise TimeoutError

    def _happen(self, event: Event) -> None:
        match event:
            case "cancel":
                self._pool.cancel(self.number)
            case "timeout":
                self._time_is_up()
            case "own cancel":
                self._inner.cancel()
            case _ if not self._inner.done():
                self._inner.set_result(event)

    def _time_is_up(self) -> None:
        """What the shared timer does when an attempt's moment has come."""
        assert self._pool._custody is not None
        deadlines = self._pool._custody._deadlines
        for attempt in list(deadlines._moments):
            if attempt is self.context:
                deadlines.drop(attempt)
                self._pool._custody._due(attempt)
