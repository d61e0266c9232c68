"""Turns are fair, exact and cheap: against a plain model, over any order of events."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from millpond.tenancy.turns import Turns

TENANTS = ("a", "b", "c", "d")


@dataclass
class Model:
    """One tenant, said plainly."""

    limit: int
    queue: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    resting: list[int] = field(default_factory=list)

    @property
    def holds_nothing(self) -> bool:
        return not (self.queue or self.running or self.resting)


class AgainstAModel(RuleBasedStateMachine):
    """Any order of everything that can happen to items."""

    @initialize(slots=st.integers(1, 5))
    def begin(self, slots: int) -> None:
        self.turns: Turns[int] = Turns(slots)
        self.tenants: dict[str, Model] = {}
        self.items = iter(range(1_000_000))

    def running(self) -> int:
        return sum(len(tenant.running) for tenant in self.tenants.values())

    def may_run(self) -> list[str]:
        if self.running() >= self.turns.slots:
            return []
        return [name for name, each in self.tenants.items() if each.queue and len(each.running) < each.limit]

    def forget(self, name: str) -> None:
        if self.tenants[name].holds_nothing:
            del self.tenants[name]

    @rule(name=st.sampled_from(TENANTS), limit=st.integers(-1, 3), weight=st.integers(0, 3))
    def push(self, name: str, limit: int, weight: int) -> None:
        item = next(self.items)
        if name not in self.tenants:
            self.tenants[name] = Model(max(1, limit))
        lane = self.turns.lanes.get(name) or self.turns.open(name, limit, weight)
        self.turns.push(lane, item)
        self.tenants[name].queue.append(item)

    @rule()
    def pop(self) -> None:
        candidates = self.may_run()
        assert self.turns.ready == bool(candidates)
        item = self.turns.pop()
        if item is None:
            assert not candidates, "held back"
            return
        (name,) = (name for name in candidates if self.tenants[name].queue[0] == item)
        self.tenants[name].running.append(self.tenants[name].queue.pop(0))

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([name for name, each in self.tenants.items() if each.running]))
        self.tenants[name].running.pop()
        self.turns.release(self.turns.lanes[name])
        self.forget(name)

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def put_off(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([name for name, each in self.tenants.items() if each.running]))
        self.tenants[name].resting.append(self.tenants[name].running.pop())
        lane = self.turns.lanes[name]
        self.turns.rest(lane)
        self.turns.release(lane)

    @precondition(lambda self: any(each.resting for each in self.tenants.values()))
    @rule(data=st.data(), comes_back=st.booleans())
    def end_a_rest(self, data: st.DataObject, comes_back: bool) -> None:
        name = data.draw(st.sampled_from([name for name, each in self.tenants.items() if each.resting]))
        item = self.tenants[name].resting.pop()
        if comes_back:
            self.turns.put_back(self.turns.lanes[name], item)
            self.tenants[name].queue.append(item)
        else:
            self.turns.give_up(self.turns.lanes[name])
            self.forget(name)

    @precondition(lambda self: any(each.queue for each in self.tenants.values()))
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([name for name, each in self.tenants.items() if each.queue]))
        item = data.draw(st.sampled_from(self.tenants[name].queue))
        self.tenants[name].queue.remove(item)
        self.turns.remove(self.turns.lanes[name], item)
        self.forget(name)

    @precondition(lambda self: self.tenants)
    @rule(data=st.data(), limit=st.integers(-1, 4), weight=st.integers(-1, 4))
    def change(self, data: st.DataObject, limit: int, weight: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.tenants)))
        self.tenants[name].limit = max(1, limit)
        self.turns.change(self.turns.lanes[name], limit, weight)

    @invariant()
    def counts_what_there_is(self) -> None:
        every = self.tenants.values()
        assert self.turns.queued == sum(len(each.queue) for each in every)
        assert self.turns.running == self.running()
        assert self.turns.resting == sum(len(each.resting) for each in every)
        assert self.turns.held == self.turns.queued + self.turns.running + self.turns.resting
        assert set(self.turns.lanes) == set(self.tenants), "a lane for each tenant that holds something, and no other"
        for name, lane in self.turns.lanes.items():
            assert list(lane.queue) == self.tenants[name].queue
            assert lane.running == len(self.tenants[name].running)
            assert lane.limit == self.tenants[name].limit

    @invariant()
    def knows_whether_any_may_run(self) -> None:
        assert self.turns.ready == bool(self.may_run())


TestAgainstAModel = AgainstAModel.TestCase


@given(weights=st.dictionaries(st.sampled_from(TENANTS), st.integers(1, 7), min_size=2), slots=st.integers(1, 4))
def test_shares_of_a_busy_pool_are_within_one_turn_of_their_weights(weights: dict[str, int], slots: int) -> None:
    turns: Turns[tuple[str, int]] = Turns(slots)
    for name, weight in weights.items():
        lane = turns.open(name, slots, weight)
        for number in range(weight * 20):
            turns.push(lane, (name, number))
    taken: Counter[str] = Counter()
    running: list[str] = []
    while all(taken[name] < weight * 20 for name, weight in weights.items()):
        if len(running) == slots:
            turns.release(turns.lanes[running.pop(0)])
        item = turns.pop()
        assert item is not None
        running.append(item[0])
        taken[item[0]] += 1
        shares = [taken[name] / weight for name, weight in weights.items()]
        assert max(shares) - min(shares) <= 1


def test_a_newcomer_waits_for_one_turn_of_each_other_tenant_whatever_they_have_queued() -> None:
    turns: Turns[int] = Turns(1)
    for name in ("big", "bigger"):
        lane = turns.open(name, 1, 1)
        for number in range(10_000):
            turns.push(lane, hash((name, number)))
    first = turns.pop()
    assert first is not None
    turns.push(turns.open("small", 1, 1), -1)
    taken = []
    for _ in range(3):
        (busy,) = [lane for lane in turns.lanes.values() if lane.running]
        turns.release(busy)
        taken.append(turns.pop())
    assert -1 in taken


def test_a_lone_tenant_may_use_every_slot_up_to_its_limit() -> None:
    turns: Turns[int] = Turns(10)
    lane = turns.open("alone", 7, 1)
    for item in range(100):
        turns.push(lane, item)
    assert [turns.pop() for _ in range(8)] == [0, 1, 2, 3, 4, 5, 6, None]
    turns.change(lane, 100, 1)
    assert [turns.pop() for _ in range(4)] == [7, 8, 9, None]


def test_a_lowered_limit_lets_what_runs_run_and_starts_nothing_above_it() -> None:
    turns: Turns[int] = Turns(10)
    lane = turns.open("shrinking", 3, 1)
    for item in range(10):
        turns.push(lane, item)
    assert [turns.pop() for _ in range(4)] == [0, 1, 2, None]
    turns.change(lane, 1, 1)
    turns.release(lane)
    turns.release(lane)
    assert turns.pop() is None
    turns.release(lane)
    assert turns.pop() == 3
    assert turns.pop() is None


def test_a_tenant_that_withdraws_everything_has_had_its_turn() -> None:
    turns: Turns[str] = Turns(10)
    heavy, light = turns.open("heavy", 10, 5), turns.open("light", 10, 1)
    for item in ("h1", "h2"):
        turns.push(heavy, item)
    turns.push(light, "l1")
    assert turns.pop() == "h1"
    turns.remove(heavy, "h2")
    turns.push(heavy, "h3")
    assert [turns.pop(), turns.pop()] == ["l1", "h3"]


@pytest.mark.parametrize("order", [1, -1])
def test_items_come_in_the_order_of_queueing_but_for_those_that_were_removed(order: int) -> None:
    turns: Turns[int] = Turns(1_000)
    lane = turns.open("one", 1_000, 3)
    for item in range(100):
        turns.push(lane, item)
    for item in range(0, 100, 2)[::order]:
        turns.remove(lane, item)
    assert [turns.pop() for _ in range(51)] == [*range(1, 100, 2), None]


def test_a_tenant_that_holds_nothing_costs_nothing() -> None:
    turns: Turns[int] = Turns(1)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(10_000):
            turns.push(turns.open(f"tenant-{number}", 1, 1), number)
            assert turns.pop() == number
            turns.release(turns.lanes[f"tenant-{number}"])
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert turns.lanes == {}
    assert after - before < 100_000
