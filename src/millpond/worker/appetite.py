"""How much to claim: enough to keep the pool busy for a moment, so that one knob, worker_count, is enough. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from millpond.tenancy.pool import Room

_HORIZON: Final = 0.25
"""Seconds of work that should wait in memory: longer than a claim takes by far, short beside any lease."""

_MEMORY: Final = 0.5
"""Seconds over which the rate of finished work is averaged."""


@dataclass(frozen=True, slots=True)
class Helping:
    """What one claim may bring."""

    size: int
    rooms: Mapping[str, int]
    """Jobs that these tenants may give."""
    default_room: int
    """Jobs that any other tenant may give."""

    def share(self, parts: int) -> Helping:
        """The first of so many equal parts, rounded up."""
        return replace(self, size=-(-self.size // parts))

    def without(self, claimed: Mapping[str, int]) -> Helping:
        """What is left when tenants have given so many."""
        rooms = {
            **self.rooms,
            **{tenant: self.rooms.get(tenant, self.default_room) - n for tenant, n in claimed.items()},
        }
        return replace(self, size=self.size - sum(claimed.values()), rooms=rooms)


class Appetite:
    """Measures how fast work is done, and says how much more of it to take."""

    def __init__(self, *, worker_count: int, tenant_queue_size: int, claim_size: int, now: float) -> None:
        self._worker_count = worker_count
        self._tenant_queue_size = tenant_queue_size
        self._claim_size = claim_size
        self._rate = 0.0
        self._finished = 0
        self._measured_at = now

    def measure(self, finished: int, now: float) -> None:
        """Learn that so many tasks are finished by now (seconds on the monotonic clock)."""
        elapsed = now - self._measured_at
        if elapsed <= 0:
            return
        weight = min(1.0, elapsed / _MEMORY)
        self._rate += weight * ((finished - self._finished) / elapsed - self._rate)
        self._finished, self._measured_at = finished, now

    @property
    def reserve(self) -> int:
        """Tasks that should wait in memory while all slots are busy. Slow work needs none: others may take it."""
        return min(int(self._rate * _HORIZON), 2 * self._claim_size)

    def helping(self, *, queued: int, running: int, room: Room) -> Helping | None:
        """What to claim now; None: nothing, until work is done.

        While enough waits, only tenants that have nothing here yet may add to it: a newcomer never stands behind
        another tenant's reserve.
        """
        if queued and queued > self.reserve // 2:
            size = min(self._worker_count, room.slots, self._claim_size)
            return Helping(size, dict.fromkeys(room.tenants, 0), min(room.default, size)) if size > 0 else None
        free = max(0, self._worker_count - running)
        size = min(free + self.reserve - queued, room.slots, self._claim_size)
        if size <= 0:
            return None
        rooms = {tenant: self._worth(tenant_room) for tenant, tenant_room in room.tenants.items()}
        return Helping(size, rooms, self._worth(room.default))

    def _worth(self, tenant_room: int) -> int:
        """Of a tenant's room, what it could run at once, by its limit, and a reserve: the rest would only wait here."""
        return min(tenant_room, max(0, tenant_room - self._tenant_queue_size) + self.reserve)
