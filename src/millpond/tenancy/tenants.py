"""Who may use the pool, how much of it, and how that is kept up to date."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from millpond.executors.threads import in_thread
from millpond.settings import PoolSettings

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant that may use the pool."""

    id: str
    worker_limit: int = 0
    """How many of its tasks may run at once; ≤ 0: the pool's default_worker_limit, else its worker_count."""
    weight: int = 1
    """How many tasks its turn has, ≥ 1: its share of a busy pool, beside the others' weights."""


class TenantProvider(Protocol):
    """Where tenants come from: a table, a file, another service."""

    def active(self) -> Iterable[Tenant] | Awaitable[Iterable[Tenant]]:
        """Every tenant that may use the pool now. An async function runs on the loop; a plain one in a thread."""


@dataclass(frozen=True, slots=True)
class Roll:
    """One answer of the provider. Never changed, only replaced, so that any thread may read it."""

    tenants: Mapping[str, Tenant]
    total: int
    """The sum of all limits."""
    smallest: int
    """The smallest limit."""


class Directory:
    """The tenants as last heard of. Without a provider every tenant is welcome, on default terms."""

    def __init__(self, settings: PoolSettings, provider: TenantProvider | None) -> None:
        self._provider = provider
        self._interval = settings.tenant_refresh_interval
        self._worker_count = settings.worker_count
        self._default_limit = settings.default_worker_limit or settings.worker_count
        self.roll: Roll | None = None if provider is None else Roll({}, 0, self._default_limit)
        """None: everybody."""
        self.failure: BaseException | None = None
        """Why the last refresh failed; None when it did not."""

    @property
    def slots(self) -> int:
        """How many tasks may run at once: min(sum of tenant limits, worker_count)."""
        return self._worker_count if self.roll is None else min(self.roll.total, self._worker_count)

    @property
    def smallest_limit(self) -> int:
        """What any tenant that nothing is known of may run at least."""
        return self._default_limit if self.roll is None else self.roll.smallest

    def limit(self, tenant: Tenant) -> int:
        """How many of this tenant's tasks may run at once, ≥ 1."""
        return tenant.worker_limit if tenant.worker_limit > 0 else self._default_limit

    def terms(self, tenant: str) -> tuple[int, int] | None:
        """Limit and weight of a tenant; None when the provider does not list it."""
        if self.roll is None:
            return self._default_limit, 1
        known = self.roll.tenants.get(tenant)
        return None if known is None else (self.limit(known), known.weight)

    async def refresh(self) -> None:
        """Ask the provider. Raises what it raises; the last good answer stays."""
        if self._provider is not None:
            answer = await self._ask(self._provider)
            self.roll = await in_thread(lambda: self._enrolled(answer))  # a hundred thousand tenants take their time

    async def keep_fresh(self, changed: Callable[[], None]) -> None:
        """Ask again every tenant_refresh_interval, for ever, and say so when the answer has come. Failures are logged.

        A slow provider is waited for, never asked twice at once; what the pool does meanwhile does not wait.
        """
        while self._provider is not None:
            await asyncio.sleep(self._interval)
            try:
                await self.refresh()
            except Exception as error:
                if self.failure is None:
                    logger.exception("The tenant provider failed; the last good list stays.")
                self.failure = error
            else:
                if self.failure is not None:
                    logger.info("The tenant provider answers again.")
                self.failure = None
                changed()

    async def _ask(self, provider: TenantProvider) -> list[Tenant]:
        if inspect.iscoroutinefunction(provider.active):
            return list(await provider.active())
        return await in_thread(lambda: list(provider.active()))  # type: ignore[arg-type]

    def _enrolled(self, tenants: Iterable[Tenant]) -> Roll:
        roll: dict[str, Tenant] = {}
        for tenant in tenants:
            if _is_sound(tenant):
                roll[tenant.id] = tenant
            else:
                logger.error("The tenant provider gave %r, which is left out: not a Tenant with an id.", tenant)
        limits = [min(self.limit(tenant), self._worker_count) for tenant in roll.values()]
        return Roll(roll, sum(limits), min(limits, default=self._default_limit))


def _is_sound(tenant: object) -> bool:
    """Whether one entry can be used: a bad one must not cost the others their place."""
    return (
        isinstance(tenant, Tenant)
        and isinstance(tenant.id, str)
        and isinstance(tenant.worker_limit, int)
        and isinstance(tenant.weight, int)
    )
