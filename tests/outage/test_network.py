"""What networks do to a worker amid its work: no job is lost, none runs twice, no restart, and few words."""

from __future__ import annotations

import asyncio

import pytest

from millpond import Worker
from millpond.events import DatabaseLost, JobsClaimed
from millpond.testing.proxy import Proxy, Way
from tests.outage.support import (
    SHORT,
    Load,
    assert_one_line_per_failure,
    complaints,
    under_way,
    waiting_outcomes,
)
from tests.worker.support import Store, eventually, quick, sessions


async def test_connections_that_end_again_and_again(
    store: Store, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    load = Load(store)
    async with load.worked_on(proxy.dsn):
        for reset in (False, True, False, True):
            proxy.cut(reset=reset)
            await load.progress()
    assert_one_line_per_failure(load, caplog)
    assert sessions(store) == []


@pytest.mark.parametrize("ways", [("server",), ("client",), ("server", "client")], ids=" and ".join)
async def test_a_black_hole_for_longer_than_the_deadline(
    store: Store, proxy: Proxy, ways: tuple[Way, ...], caplog: pytest.LogCaptureFixture
) -> None:
    load = Load(store)
    async with load.worked_on(proxy.dsn) as worker:
        proxy.block(*ways)
        await waiting_outcomes(worker)
        await eventually(lambda: any("no answer" in event.reason for event in load.witness.of(DatabaseLost)))
        proxy.heal()
    assert_one_line_per_failure(load, caplog)


async def test_half_open_connections(store: Store, proxy: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    load = Load(store)
    async with load.worked_on(proxy.dsn):
        proxy.half_open()
        await eventually(lambda: not sessions(store))
    assert_one_line_per_failure(load, caplog)


async def test_a_server_that_is_not_there(store: Store, proxy: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    load = Load(store)
    async with load.worked_on(proxy.dsn) as worker:
        proxy.refuse()
        await waiting_outcomes(worker)
        proxy.heal()
    assert_one_line_per_failure(load, caplog)


async def test_a_slow_network_is_no_outage(store: Store, proxy: Proxy, caplog: pytest.LogCaptureFixture) -> None:
    load = Load(store, jobs=100)
    async with load.worked_on(proxy.dsn, statement_timeout=20.0):
        proxy.slow(delay=0.005, chunk=1_000)
    assert complaints(caplog) == []


async def test_claims_stop_while_outcomes_cannot_be_written(store: Store, proxy: Proxy) -> None:
    load = Load(store, jobs=600)
    async with load.worked_on(proxy.dsn, settle_size=10, claim_size=20) as worker:
        proxy.block(name="millpond settler")
        await eventually(lambda: worker.health().unwritten >= 100 and not under_way(worker))
        claims = len(load.witness.of(JobsClaimed))
        # Ten batches stop the claims; by then the pool holds what runs, and a reserve of two claims, and one may come.
        assert worker.health().unwritten <= 100 + 20 + 40 + 20
        store.enqueue()  # rings
        load.jobs += 1
        await asyncio.sleep(1.2 * SHORT)  # and it looks by itself, too
        assert len(load.witness.of(JobsClaimed)) == claims
        proxy.heal()
        load.ids = [row["id"] for row in store.rows()]


@pytest.mark.parametrize("outage", ["refused", "black hole"])
async def test_a_stop_during_an_outage_ends_soon_and_tells_what_is_unwritten(
    store: Store, proxy: Proxy, outage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millpond.worker.worker._LONGEST_GOODBYE", 0.3)
    monkeypatch.setattr("millpond.worker.settler._LAST_TRIES", 0.3)
    load = Load(store)
    store.enqueue_many("work", {"a": load.jobs})
    worker = Worker(proxy.dsn, load.registry(), settings=quick(statement_timeout=600.0))
    running = asyncio.ensure_future(worker.run())
    await eventually(lambda: load.ended > 50)
    if outage == "refused":
        proxy.refuse()
    else:
        proxy.block()
    await eventually(lambda: worker.health().unwritten and not under_way(worker))
    worker.stop()
    async with asyncio.timeout(15.0):
        tally = await running
    assert tally.unwritten > 0
    assert not tally.clean
    assert store.states()["running"] >= tally.unwritten  # of which the reaper takes care
