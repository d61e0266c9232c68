"""What a task costs in the tenant pool, and a tenant that has none: `python -m benchmarks.pool [--rounds N]`.

Times are CPU microseconds of this process for one task, all its threads counted, from `submit` to the callback; medians
of the rounds, with the smallest and the largest. The tasks do nothing, so this is what the pool adds to them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from millpond.executors import Isolation
from millpond.outcome import Outcome
from millpond.settings import PoolSettings
from millpond.tenancy.pool import TenantPool
from millpond.tenancy.task import Task, TaskContext
from millpond.tenancy.tenants import Tenant

try:
    from uvloop import new_event_loop
except ImportError:
    new_event_loop = asyncio.new_event_loop

MANY: Final = 100_000
BATCH: Final = 1_000


async def returns(_: TaskContext) -> None:
    """Never waits."""


async def waits(_: TaskContext) -> None:
    """Waits once, for one turn of the loop."""
    await asyncio.sleep(0)


def plain(_: TaskContext) -> None:
    """Runs in a thread."""


@dataclass(frozen=True)
class Case:
    """One kind of task."""

    name: str
    run: Callable[[TaskContext], Awaitable[None] | None]
    isolation: Isolation
    timeout: float | None = None
    tasks: int = 20 * BATCH


CASES: Final = (
    Case("async, returns at once", returns, "loop"),
    Case("async, waits once", waits, "loop"),
    Case("async, waits once, with a timeout", waits, "loop", timeout=60.0),
    Case("plain function, in a thread", plain, "thread"),
    Case("plain function, in a child process", plain, "process", tasks=500),
)


class Tenants:
    """A provider of so many."""

    def __init__(self, number: int) -> None:
        self._number = number

    def active(self) -> Iterator[Tenant]:
        return (Tenant(f"tenant-{number:06}") for number in range(self._number))


@dataclass
class Tally:
    """Counts the callbacks, and says when all have come."""

    missing: int = 0
    all_told: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, _: Task, __: Outcome) -> None:
        self.missing -= 1
        if not self.missing:
            self.all_told.set()


async def cost(pool: TenantPool, case: Case, tenants: int) -> float:
    """CPU seconds for one task, when they come in batches, tenants in turn."""
    tally = Tally()
    began = time.process_time()
    for start in range(0, case.tasks, BATCH):
        tally.missing = min(BATCH, case.tasks - start)
        tally.all_told.clear()
        for number in range(start, start + tally.missing):
            tenant = f"tenant-{number % tenants:06}"
            pool.submit(
                Task(
                    tenant=tenant,
                    run=case.run,
                    complete=tally,
                    isolation=case.isolation,
                    timeout=case.timeout,
                    id=number,
                )
            )
        await tally.all_told.wait()
    return (time.process_time() - began) / case.tasks


async def costs(tenants: int, rounds: int) -> dict[str, list[float]]:
    """Each case so often, interleaved, so that a busy moment of the machine hits all of them."""
    measured: dict[str, list[float]] = {case.name: [] for case in CASES}
    async with TenantPool(PoolSettings(process_count=1), tenants=Tenants(tenants)) as pool:
        for case in CASES:
            await cost(pool, case, tenants)
        for _ in range(rounds):
            for case in CASES:
                measured[case.name].append(await cost(pool, case, tenants))
    return measured


async def bytes_of_an_idle_tenant() -> float:
    """What a pool of many tenants that do nothing takes in memory, for each of them."""
    async with TenantPool(tenants=Tenants(1)):
        pass
    tracemalloc.start()
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    async with TenantPool(tenants=Tenants(MANY)):
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / MANY


async def main(rounds: int) -> None:
    """Print a table."""
    columns = (1, 100, MANY)
    table = [await costs(tenants, rounds) for tenants in columns]
    print(f"{'CPU µs for a task, by tenants':36}" + "".join(f"{tenants:>24,}" for tenants in columns))
    for case in CASES:
        row = [[seconds * 1e6 for seconds in column[case.name]] for column in table]
        print(f"{case.name:36}" + "".join(f"{shown(cell):>24}" for cell in row))
    print(f"\nbytes for an idle tenant, its id included: {await bytes_of_an_idle_tenant():.0f}")


def shown(values: list[float]) -> str:
    """Median (smallest-largest)."""
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main(parser.parse_args().rounds))
