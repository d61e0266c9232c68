"""One heap and one timer: every item comes due once, in order, unless it was dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from millpond.clock import monotonic
from millpond.tenancy.deadlines import Deadlines


@dataclass
class Timer:
    """What the loop gives for call_later."""

    when: float
    callback: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Time:
    """A loop and a clock that move when told."""

    now: float = 0.0
    timers: list[Timer] = field(default_factory=list)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(self.now + delay, callback)
        self.timers.append(timer)
        return timer

    @property
    def live(self) -> list[Timer]:
        return [timer for timer in self.timers if not timer.cancelled]

    def move_to(self, moment: float) -> None:
        while timers := [timer for timer in self.live if timer.when <= moment]:
            timer = min(timers, key=lambda each: each.when)
            self.timers.remove(timer)
            self.now = max(self.now, timer.when)
            timer.callback()
        self.now = moment


def made(time: Time, due: Callable[[str], None]) -> Deadlines[str]:
    return Deadlines(time, due, clock=lambda: time.now)  # type: ignore[arg-type]


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from(["add", "drop", "wait"]), st.integers(0, 9)), max_size=60
    )
)
def test_each_item_comes_due_once_at_its_moment_unless_dropped(steps: list[tuple[str, str, int]]) -> None:
    time = Time()
    due: list[tuple[str, float]] = []
    deadlines = made(time, lambda item: due.append((item, time.now)))
    expected: list[tuple[str, float]] = []
    waiting: dict[str, float] = {}
    for item, step, amount in steps:
        if step == "add" and item not in waiting:
            deadlines.add(time.now + amount, item)
            waiting[item] = time.now + amount
        elif step == "drop":
            deadlines.drop(item)
            waiting.pop(item, None)
        else:
            time.move_to(time.now + amount)
            expected += [(each, when) for each, when in waiting.items() if when <= time.now]
            waiting = {each: when for each, when in waiting.items() if when > time.now}
        assert len(deadlines) == len(waiting)
        assert len(time.live) <= 1, "one timer"
    assert sorted(due) == sorted(expected)
    assert [when for _, when in due] == sorted(when for _, when in due)


def test_deadlines_that_were_dropped_take_no_memory() -> None:
    time = Time()
    deadlines = made(time, lambda _: None)
    for number in range(10_000):
        deadlines.add(time.now + 1_000, str(number))
        deadlines.drop(str(number))
    assert len(deadlines._heap) < 200


def test_an_item_that_was_dropped_and_added_again_comes_due_at_its_new_moment() -> None:
    time = Time()
    due: list[float] = []
    deadlines = made(time, lambda _: due.append(time.now))
    deadlines.add(1, "x")
    deadlines.drop("x")
    deadlines.add(5, "x")
    time.move_to(10)
    assert due == [5]


def test_a_due_item_may_be_added_again() -> None:
    time = Time()
    due: list[float] = []

    def again(item: str) -> None:
        due.append(time.now)
        if len(due) < 3:
            deadlines.add(time.now + 1, item)

    deadlines = made(time, again)
    deadlines.add(1, "x")
    time.move_to(10)
    assert due == [1, 2, 3]


def test_nothing_comes_due_after_close() -> None:
    time = Time()
    due: list[str] = []
    deadlines = made(time, due.append)
    deadlines.add(1, "x")
    deadlines.close()
    time.move_to(10)
    assert due == []
    assert time.live == []


async def test_on_a_real_loop() -> None:
    came = asyncio.Event()
    due: list[str] = []

    def note(item: str) -> None:
        due.append(item)
        if len(due) == 2:
            came.set()

    loop = asyncio.get_running_loop()
    deadlines = Deadlines(loop, note)
    deadlines.add(monotonic() + 0.02, "second")
    deadlines.add(monotonic() + 0.01, "first")
    deadlines.add(monotonic() + 60, "much later")
    async with asyncio.timeout(10):
        await came.wait()
    deadlines.close()
    assert due == ["first", "second"]
