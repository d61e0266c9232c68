"""Moments that something waits for: one heap and one timer of the event loop, however many there are."""

from __future__ import annotations

import heapq
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from millpond.clock import Monotonic, monotonic

T = TypeVar("T")

_SLACK: Final = 64
"""Entries of the heap that may be out of date before it is rebuilt, beside one for each that is not."""


class Deadlines(Generic[T]):
    """Calls `due(item)` on the loop's thread once the item's moment has come, unless it was dropped before.

    Each item has one moment at a time. Adding and dropping cost what a heap costs, O(log n) and O(1), amortised.
    """

    def __init__(self, loop: AbstractEventLoop, due: Callable[[T], None], *, clock: Monotonic = monotonic) -> None:
        self._loop = loop
        self._due = due
        self._clock = clock
        self._moments: dict[T, float] = {}
        self._heap: list[tuple[float, int, T]] = []
        self._count = 0
        self._timer: TimerHandle | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        return len(self._moments)

    def add(self, when: float, item: T) -> None:
        """`when` is in seconds on the clock, which is monotonic."""
        self._moments[item] = when
        self._count += 1
        heapq.heappush(self._heap, (when, self._count, item))
        if self._timer is None or when < self._timer_at:
            self._arm(when)

    def drop(self, item: T) -> None:
        """Forget an item. One that is not known is none to forget."""
        if self._moments.pop(item, None) is not None and len(self._heap) > 2 * len(self._moments) + _SLACK:
            self._heap = [entry for entry in self._heap if self._moments.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def close(self) -> None:
        """Forget everything."""
        self._moments.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_later(max(0.0, when - self._clock()), self._ring)

    def _ring(self) -> None:
        self._timer = None
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            when, _, item = heapq.heappop(self._heap)
            if self._moments.get(item) == when:
                del self._moments[item]
                self._due(item)
        if self._heap:
            self._arm(self._heap[0][0])
