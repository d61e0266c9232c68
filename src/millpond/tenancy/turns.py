"""Whose turn it is: weighted deficit round robin over tenants. Pure: no clock, no event loop, no I/O.

Every call takes the same time however many tenants and items there are. Only tenants that hold something have a lane;
only those that may run something now, that is, with queued work and below their limit, are in the ring.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")


class Lane(Generic[T]):
    """One tenant's place: what it has queued, how many it runs, and how many it may."""

    __slots__ = ("credit", "held", "limit", "queue", "resting", "running", "tenant", "weight")

    def __init__(self, tenant: str, limit: int, weight: int) -> None:
        self.tenant = tenant
        self.limit = limit
        self.weight = weight
        self.queue: OrderedDict[T, None] = OrderedDict()  # a queue that anything may leave from anywhere
        self.held = 0  # everything: queued, running and resting
        self.running = 0
        self.resting = 0  # neither queued nor running: coming back later
        self.credit = 0  # how many more it may take in its turn, which others may be waiting for


class Turns(Generic[T]):
    """Hands out items, one at a time: at most `slots` at once, at most a tenant's limit of its own.

    A tenant whose turn it is takes up to `weight` items, then goes to the end of the ring; so over any stretch in which
    two tenants could always run, what they took, divided by their weights, differs by at most one turn. Nothing is ever
    held back: `pop` gives an item whenever any may run.

    Items are told apart by hash and equality, and may be queued once at a time. What rests is only counted: it keeps
    its tenant's lane open until it is queued again.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self.lanes: dict[str, Lane[T]] = {}
        self.held = 0
        self.running = 0
        self.resting = 0
        self._ring: OrderedDict[Lane[T], None] = OrderedDict()

    @property
    def ready(self) -> bool:
        """Whether `pop` would give an item."""
        return bool(self._ring) and self.running < self.slots

    @property
    def queued(self) -> int:
        """Those of all that are held that neither run nor rest."""
        return self.held - self.running - self.resting

    def open(self, tenant: str, limit: int, weight: int) -> Lane[T]:
        """A lane for a tenant that has none. It counts from its first item to its last."""
        return Lane(tenant, max(1, limit), max(1, weight))

    def push(self, lane: Lane[T], item: T) -> None:
        """Queue a new item behind the tenant's others."""
        if not lane.held:
            self.lanes[lane.tenant] = lane
        self.held += 1
        lane.held += 1
        self._queue(lane, item)

    def pop(self) -> T | None:
        """The next item, which now runs; None when none may."""
        if not self._ring or self.running >= self.slots:
            return None
        lane = next(iter(self._ring))
        item, _ = lane.queue.popitem(last=False)
        self.running += 1
        lane.running += 1
        lane.credit -= 1
        if not lane.queue:
            lane.credit = 0
            del self._ring[lane]
        elif lane.running >= lane.limit:
            del self._ring[lane]
        elif not lane.credit:
            lane.credit = lane.weight
            self._ring.move_to_end(lane)
        return item

    def release(self, lane: Lane[T]) -> None:
        """One running item of the lane is done with."""
        self.running -= 1
        lane.running -= 1
        self._forget(lane)
        if lane.queue and lane not in self._ring:
            self._join(lane)

    def remove(self, lane: Lane[T], item: T) -> None:
        """Take a queued item out, wherever it stands."""
        del lane.queue[item]
        if not lane.queue:
            lane.credit = 0
            self._ring.pop(lane, None)
        self._forget(lane)

    def rest(self, lane: Lane[T]) -> None:
        """One more item of the lane is coming later."""
        self.held += 1
        lane.held += 1
        self.resting += 1
        lane.resting += 1

    def put_back(self, lane: Lane[T], item: T) -> None:
        """A resting item is queued again."""
        self.resting -= 1
        lane.resting -= 1
        self._queue(lane, item)

    def give_up(self, lane: Lane[T]) -> None:
        """A resting item will not come again."""
        self.resting -= 1
        lane.resting -= 1
        self._forget(lane)

    def change(self, lane: Lane[T], limit: int, weight: int) -> None:
        """Other terms from now on. What runs above a lowered limit runs on."""
        lane.limit, lane.weight = max(1, limit), max(1, weight)
        lane.credit = min(lane.credit, lane.weight)
        if lane.running >= lane.limit:
            self._ring.pop(lane, None)
        elif lane.queue and lane not in self._ring:
            self._join(lane)

    def _queue(self, lane: Lane[T], item: T) -> None:
        lane.queue[item] = None
        if lane not in self._ring:
            self._join(lane)

    def _join(self, lane: Lane[T]) -> None:
        """Queue up for a turn if it may run; or go on with the turn that its limit has interrupted."""
        if lane.running < lane.limit:
            self._ring[lane] = None
            if lane.credit:
                self._ring.move_to_end(lane, last=False)
            else:
                lane.credit = lane.weight

    def _forget(self, lane: Lane[T]) -> None:
        """One item less; with the last one the lane goes."""
        self.held -= 1
        lane.held -= 1
        if not lane.held:
            del self.lanes[lane.tenant]
