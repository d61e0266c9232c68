"""How much is claimed."""

from __future__ import annotations

from millpond.tenancy.pool import Room
from millpond.worker.appetite import Appetite


def room(slots: int = 10_000, default: int = 2_000, **tenants: int) -> Room:
    return Room(slots=slots, tenants=tenants, default=default)


def appetite(rate: float = 0.0) -> Appetite:
    made = Appetite(worker_count=100, claim_size=1_000, now=0.0)
    made.measure(int(rate * 10), now=10.0)
    return made


def test_slow_work_fills_the_free_slots_and_no_more() -> None:
    helping = appetite().helping(queued=0, running=40, room=room())
    assert helping is not None
    assert helping.size == 60
    assert appetite().helping(queued=0, running=100, room=room()) is None


def test_fast_work_gets_a_reserve() -> None:
    helping = appetite(2_000).helping(queued=0, running=100, room=room(a=300))
    assert helping is not None
    assert (helping.size, helping.rooms, helping.default_room) == (500, {"a": 300}, 2_000)


def test_a_claim_is_bounded_by_its_size_and_by_the_pools_room() -> None:
    helping = appetite(100_000).helping(queued=0, running=100, room=room())
    assert helping is not None
    assert helping.size == 1_000
    assert appetite(100_000).helping(queued=0, running=0, room=room(slots=0)) is None


def test_while_enough_waits_only_newcomers_are_taken() -> None:
    helping = appetite(2_000).helping(queued=400, running=100, room=room(a=1_600))
    assert helping is not None
    assert (helping.size, helping.rooms, helping.default_room) == (100, {"a": 0}, 100)
