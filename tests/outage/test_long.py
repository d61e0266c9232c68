"""The long forms: an outage of minutes, and everything that can happen to connections, at random."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable

import pytest

from millpond import PoolSettings
from millpond.clock import monotonic
from millpond.events import DatabaseLost
from millpond.testing.proxy import Proxy
from millpond.testing.server import Server
from tests.outage.support import Load, alter, assert_one_line_per_failure, end_sessions, waiting_outcomes
from tests.outage.test_server import own, server
from tests.worker.support import LONG, Store, eventually

__all__ = ["own", "server"]

pytestmark = pytest.mark.storm

RECOVERY = 5.0
"""Seconds from the return of the database until outcomes are written again."""


@pytest.mark.parametrize("seconds", [60.0, 600.0])
async def test_a_server_that_is_down_for_minutes(
    own: Store, server: Server, seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    load = Load(own)
    async with load.worked_on(own.database.dsn, stale_timeout=2 * seconds, statement_timeout=30.0) as worker:
        await asyncio.to_thread(server.stop, "immediate")
        await waiting_outcomes(worker)
        await asyncio.sleep(seconds)
        unwritten = worker.health().unwritten
        await asyncio.to_thread(server.start)
        returned = monotonic()
        await eventually(lambda: worker.health().unwritten < unwritten)
        recovery = monotonic() - returned
    assert recovery <= RECOVERY
    assert_one_line_per_failure(load, caplog)
    lines = Counter(event.loop for event in load.witness.of(DatabaseLost))
    assert max(lines.values()) <= 10 + seconds / 2.5
    print(f"down for {seconds:g} s: outcomes written again after {recovery:.1f} s; failures by loop: {dict(lines)}")


async def test_an_outage_longer_than_the_lease_with_the_usual_settings(store: Store, proxy: Proxy) -> None:
    """Half a minute of silence ends the lease; what had ended is written afterwards, and nothing of it runs again."""
    load = Load(store)
    async with load.worked_on(proxy.dsn, statement_timeout=30.0) as worker:
        proxy.block()
        await waiting_outcomes(worker)
        await asyncio.sleep(45.0)
        proxy.heal()
        returned = monotonic()
        await eventually(lambda: not worker.health().unwritten and worker.health().worker_id)
        print(f"silent for 45 s: registered and written after {monotonic() - returned:.1f} s")


async def test_anything_at_random(store: Store, proxy: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    """Two minutes of faults, each for a moment, over a worker at full speed."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    names = [None, *(f"millpond {loop}" for loop in ("claimer", "settler", "upkeep", "lease", "listener"))]
    faults: list[Callable[[], object]] = [
        lambda: proxy.cut(chance.choice(names)),
        lambda: proxy.cut(chance.choice(names), reset=True),
        lambda: proxy.half_open(chance.choice(names)),
        lambda: proxy.block(name=chance.choice(names)),
        lambda: proxy.block("server", name=chance.choice(names)),
        lambda: proxy.block("client", name=chance.choice(names)),
        lambda: proxy.slow(delay=0.02, chunk=500, name=chance.choice(names)),
        lambda: proxy.refuse(),
        lambda: end_sessions(store),
        lambda: alter(store, "SET default_transaction_read_only = on"),
    ]
    load, begun = Load(store, jobs=20_000), monotonic()
    async with load.worked_on(proxy.dsn, pool=PoolSettings(worker_count=20, graceful_timeout=LONG)):
        while load.ended < load.jobs and monotonic() - begun < 120.0:
            await asyncio.sleep(chance.uniform(0.0, 1.0))
            chance.choice(faults)()
            await asyncio.sleep(chance.uniform(0.0, 2.0))
            alter(store, "RESET default_transaction_read_only")
            proxy.heal()
        end_sessions(store)  # those that came while the database was read-only
    assert_one_line_per_failure(load, caplog)
    lost = Counter(event.loop for event in load.witness.of(DatabaseLost))
    print(f"seed {seed}: {load.jobs} jobs, failures by loop: {dict(lost)}")
