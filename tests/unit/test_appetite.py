"""How much is claimed."""

from __future__ import annotations

from millpond.tenancy.pool import Room
from millpond.worker.appetite import Appetite


def room(slots: int = 10_000, default: int = 2_100, **tenants: int) -> Room:
    return Room(slots=slots, tenants=tenants, default=default)


def appetite(rate: float = 0.0) -> Appetite:
    made = Appetite(worker_count=100, tenant_queue_size=2_000, claim_size=1_000, now=0.0)
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
    assert (helping.size, helping.rooms, helping.default_room) == (500, {"a": 300}, 600)


def test_a_claim_is_bounded_by_its_size_and_by_the_pools_room() -> None:
    helping = appetite(100_000).helping(queued=0, running=100, room=room())
    assert helping is not None
    assert helping.size == 1_000
    assert appetite(100_000).helping(queued=0, running=0, room=room(slots=0)) is None


def test_while_enough_waits_only_newcomers_are_taken() -> None:
    helping = appetite(2_000).helping(queued=400, running=100, room=room(a=1_600))
    assert helping is not None
    assert (helping.size, helping.rooms, helping.default_room) == (100, {"a": 0}, 100)


def test_a_tenant_gives_what_it_could_run_and_its_part_of_the_reserve() -> None:
    helping = appetite().helping(queued=0, running=10, room=room(default=2_001, half=2_003, full=2_000, over=1_990))
    assert helping is not None
    assert helping.rooms == {"half": 3, "full": 0, "over": 0}
    assert helping.default_room == 1


def test_queues_share_a_helping() -> None:
    helping = appetite().helping(queued=0, running=0, room=room(a=2_050))
    assert helping is not None
    first = helping.share(3)
    assert (first.size, first.rooms) == (34, helping.rooms)
    rest = helping.without({"a": 30, "b": 4})
    assert (rest.size, rest.rooms, rest.default_room) == (66, {"a": 20, "b": 96}, 100)
    assert rest.share(2).size == 33
    assert rest.share(1).size == 66
