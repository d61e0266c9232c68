"""What can be said of a pool at one moment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Room:
    """How much more the pool can take. What is beyond it is refused."""

    slots: int
    """Tasks, over all tenants."""
    tenants: Mapping[str, int]
    """Tasks of each tenant that the pool holds something of."""
    default: int
    """Tasks of any other tenant."""


@dataclass(frozen=True, slots=True)
class TenantHealth:
    """One tenant's part of the pool."""

    depth: int
    """Tasks that wait, those that wait for a retry included."""
    capacity: int
    """Tasks that may wait."""
    limit: int
    """Tasks that may run at once."""
    running: int


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a pool at one moment."""

    healthy: bool
    """Whether it takes tasks, runs some of them, and its event loop moves."""
    stopping: bool
    """Whether it was told to stop, and may still be running tasks."""
    queue_depth: int
    """Tasks that wait, over all tenants; those that wait for a retry included."""
    queue_capacity: int
    """Tasks that may wait, over all tenants."""
    worker_count: int
    """Tasks that may run at once, by the settings."""
    concurrency: int
    """Tasks that may run at once, as tenants are now: min(sum of their limits, worker_count)."""
    running: int
    """Slots in use."""
    stuck: int
    """Slots in use by threads whose attempt has timed out or was cancelled."""
    loop_lag: float
    """Seconds that the event loop took to come round when last measured, or has taken by now if it is still at it."""
    provider_failure: str | None
    """Why the tenants are not up to date; None when they are."""
    tenants: Mapping[str, TenantHealth]
    """Of every active tenant, and of those that are gone but still hold tasks."""


class TenantsHealth(Mapping[str, TenantHealth]):
    """Of the few tenants that hold something, and of the many that do not, without a pass over all of those."""

    def __init__(
        self, holding: Mapping[str, TenantHealth], active: Collection[str], idle: Callable[[str], TenantHealth]
    ) -> None:
        """`idle` tells of an active tenant that holds nothing."""
        self._holding = holding
        self._active = active
        self._idle = idle

    def __getitem__(self, tenant: str) -> TenantHealth:
        if (held := self._holding.get(tenant)) is not None:
            return held
        if tenant not in self._active:
            raise KeyError(tenant)
        return self._idle(tenant)

    def __iter__(self) -> Iterator[str]:
        yield from self._active
        yield from self._leaving()

    def __len__(self) -> int:
        return len(self._active) + sum(1 for _ in self._leaving())

    def _leaving(self) -> Iterator[str]:
        return (tenant for tenant in self._holding if tenant not in self._active)
