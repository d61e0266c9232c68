"""Who may use the pool, how much of it, and how that is kept up to date."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from millpond.executors.threads import in_thread
from millpond.settings import PoolSettings
from millpond.tenancy.logs import logger_of

logger = logger_of(__name__)


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


class Terms(NamedTuple):
    """What a tenant may, resolved."""

    limit: int
    weight: int


class Directory:
    """The tenants as last heard of. Without a provider every tenant is welcome, on default terms."""

    def __init__(self, settings: PoolSettings, provider: TenantProvider | None) -> None:
        self._provider = provider
        self._interval = settings.tenant_refresh_interval
        self._worker_count = settings.worker_count
        self._default = Terms(settings.default_worker_limit or settings.worker_count, 1)
        self._roll: Roll | None = None if provider is None else Roll({}, 0, self._default.limit)
        self.failure: BaseException | None = None
        """Why the tenants are not up to date; None when they are."""

    @property
    def active(self) -> Mapping[str, Terms] | None:
        """The tenants that may use the pool; None: every one. Never changed, only replaced."""
        return None if self._roll is None else self._roll.tenants

    @property
    def slots(self) -> int:
        """How many tasks may run at once: min(sum of tenant limits, worker_count)."""
        return self._worker_count if self._roll is None else min(self._roll.total, self._worker_count)

    @property
    def smallest_limit(self) -> int:
        """What every tenant may run at least."""
        return self._default.limit if self._roll is None else self._roll.smallest

    def __contains__(self, tenant: str) -> bool:
        return self._roll is None or tenant in self._roll.tenants

    def terms(self, tenant: str) -> Terms:
        """What this tenant may; the default when nothing is known of it."""
        return self._default if self._roll is None else self._roll.tenants.get(tenant, self._default)

    async def refresh(self) -> None:
        """Ask the provider. Raises what it raises; the last good answer stays."""
        if self._provider is not None:
            tenants = await self._ask(self._provider)
            self._roll = await in_thread(lambda: self._enrolled(tenants))  # many tenants take their time

    async def keep_fresh(self, changed: Callable[[], None]) -> None:
        """Ask again every tenant_refresh_interval, for ever, and say so when the answer has come. Failures are logged.

        A slow provider is waited for, and never asked twice at once. Nothing else waits for it.
        """
        loop = asyncio.get_running_loop()
        while not _is_cancelled():
            await asyncio.sleep(self._interval)
            late = loop.call_later(
                self._interval, self._failed, TimeoutError("It has not answered for a whole interval.")
            )
            try:
                await self.refresh()
            except asyncio.CancelledError as error:
                if _is_cancelled():
                    raise
                self._failed(error)
            except BaseException as error:  # noqa: BLE001 - it is logged; whatever it is, the next answer may be good
                self._failed(error)
            else:
                self._answered()
                changed()
            finally:
                late.cancel()

    async def _ask(self, provider: TenantProvider) -> list[Tenant]:
        if inspect.iscoroutinefunction(provider.active):
            return list(await provider.active())
        return await in_thread(lambda: list(provider.active()))  # type: ignore[arg-type]

    def _failed(self, error: BaseException) -> None:
        if self.failure is None:
            logger.error("The tenant provider failed; the last good list stays.", exc_info=error)
        self.failure = error

    def _answered(self) -> None:
        if self.failure is not None:
            logger.info("The tenant provider answers again.")
        self.failure = None

    def _enrolled(self, tenants: Iterable[Tenant]) -> Roll:
        shared: dict[Terms, Terms] = {}  # few tenants differ in their terms: an idle one should cost next to nothing
        roll: dict[str, Terms] = {}
        for tenant in tenants:
            if _is_sound(tenant):
                limit = tenant.worker_limit if tenant.worker_limit > 0 else self._default.limit
                terms = Terms(limit, max(1, tenant.weight))
                roll[tenant.id] = shared.setdefault(terms, terms)
            else:
                logger.error("The tenant provider gave %r, which is left out: not a Tenant.", tenant)
        limits = [terms.limit for terms in roll.values()]
        return Roll(roll, total=sum(limits), smallest=min(limits, default=self._default.limit))


class Roll(NamedTuple):
    """One answer of the provider, resolved."""

    tenants: Mapping[str, Terms]
    total: int
    """The sum of all limits."""
    smallest: int
    """The smallest limit."""


def _is_sound(tenant: object) -> bool:
    """Whether one entry can be used: a bad one must not cost the others their place."""
    return (
        isinstance(tenant, Tenant)
        and isinstance(tenant.id, str)
        and isinstance(tenant.worker_limit, int)
        and isinstance(tenant.weight, int)
    )


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
