"""Each statement of each loop is lost once, on its way there or on its way back: nothing comes of it but a new try."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Literal

import pytest
from psycopg import sql

from millpond import ExecutorRegistry, JobContext
from millpond.events import DatabaseLost, JobsSettled
from millpond.store.statement import load as text_of
from millpond.testing.proxy import Proxy
from tests.outage.support import Load, assert_one_line_per_failure, complaints
from tests.worker.support import LONG, Store, Witness, eventually, working

Part = Literal["request", "answer"]

LOOPS = {
    "claimer": ("open_session", "claim_jobs"),
    "settler": ("open_session", "settle_jobs"),
    "upkeep": (
        "open_session",
        "promote_jobs",
        "BEGIN",
        "take_duty",
        "bury_workers",
        "COMMIT",
        "find_lost_jobs",
        "find_unclaimable",
    ),
    "lease": ("open_session", "beat_worker"),
    "listener": ("open_session", "LISTEN"),
}


def words(statement: str) -> bytes:
    """What only this statement has in it: the longest piece of its first comment that no parameter interrupts."""
    if statement.isupper():
        return statement.encode()
    return max(re.split(r"\{\w+\}", text_of(statement).splitlines()[0]), key=len).encode()


@pytest.mark.parametrize("part", ["request", "answer"])
@pytest.mark.usefixtures("impatient")
async def test_every_statement_is_lost_once(
    store: Store, proxy: Proxy, part: Part, caplog: pytest.LogCaptureFixture
) -> None:
    losses = {
        (loop, statement): proxy.lose(words(statement), part, f"millpond {loop}")
        for loop, statements in LOOPS.items()
        for statement in statements
    }
    load = Load(store)
    async with load.worked_on(proxy.dsn):
        await eventually(lambda: all(loss.happened.is_set() for loss in losses.values()))
    assert_one_line_per_failure(load, caplog)
    assert store.workers() == []


@pytest.mark.parametrize("part", ["request", "answer"])
@pytest.mark.usefixtures("impatient")
async def test_a_claim_that_is_lost_again_and_again_strands_nothing(store: Store, proxy: Proxy, part: Part) -> None:
    """What it took is handed back by its token, even when the answer to that is lost, too."""
    load = Load(store)
    losses = [proxy.lose(words("claim_jobs"), part) for _ in range(3)]
    losses += [proxy.lose(words("release_claim"), part) for _ in range(2 if part == "answer" else 0)]
    async with load.worked_on(proxy.dsn):
        await eventually(lambda: all(loss.happened.is_set() for loss in losses))
    assert {row["attempt"] for row in store.rows()} == {1}


async def test_an_outcome_whose_answer_was_lost_is_settled_once_and_is_not_stale(
    store: Store, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    loss = proxy.lose(words("settle_jobs"), "answer")
    load = Load(store, jobs=40)
    async with load.worked_on(proxy.dsn):
        await eventually(loss.happened.is_set)
        settled = store.states().get("completed", 0)
    assert settled > 0  # the statement whose answer was lost had done its work
    events = load.witness.of(JobsSettled)
    assert sum(event.states["completed"] for event in events) == 40
    assert [event.stale for event in events if event.stale] == []
    assert [line for line in complaints(caplog) if "too late" in line] == []


async def test_an_outcome_that_failed_with_an_answer_can_still_be_stale(store: Store) -> None:
    """An error is an answer: there is no doubt about what the statement did."""
    name = sql.Identifier(store.database.name)
    with store.database.connect() as connection:
        connection.execute(sql.SQL("ALTER DATABASE {} SET lock_timeout = '50ms'").format(name))
    registry, witness = ExecutorRegistry(), Witness()
    started, release = asyncio.Event(), asyncio.Event()

    async def work(ctx: JobContext, args: Any) -> None:
        started.set()
        await release.wait()

    registry.register("work", work)
    job_id = store.enqueue()
    async with working(store, registry, observe=witness):
        await started.wait()
        with store.database.connect(options="-c lock_timeout=0") as connection:
            connection.execute(
                sql.SQL("UPDATE {}.jobs SET claim_token = claim_token + 1 WHERE id = %s").format(
                    sql.Identifier(store.database.schema)
                ),
                (job_id,),
            )
            release.set()
            await eventually(lambda: [event for event in witness.of(DatabaseLost) if event.loop == "settler"])
        await eventually(lambda: [event for event in witness.of(JobsSettled) if event.stale == 1])


@pytest.mark.parametrize("part", ["request", "answer"])
async def test_until_done_asks_again(store: Store, proxy: Proxy, part: Part) -> None:
    loss = proxy.lose(words("find_unfinished"), part)
    load = Load(store, jobs=20)
    async with load.worked_on(proxy.dsn, exit_when_done=True, poll_interval=0.05) as worker:
        await asyncio.wait_for(worker.finished(), LONG)
    assert loss.happened.is_set()


@pytest.mark.parametrize("part", ["request", "answer"])
async def test_a_registration_that_is_lost_is_followed_by_another(store: Store, proxy: Proxy, part: Part) -> None:
    loss = proxy.lose(words("register_worker"), part)
    load = Load(store, jobs=20)
    async with load.worked_on(proxy.dsn):
        assert loss.happened.is_set()
    assert len(store.workers()) == (1 if part == "answer" else 0)  # one that never lived: its lease runs out


@pytest.mark.parametrize("part", ["request", "answer"])
async def test_a_goodbye_that_is_lost_is_left_to_the_lease(
    store: Store, proxy: Proxy, part: Part, caplog: pytest.LogCaptureFixture
) -> None:
    loss = proxy.lose(words("retire_worker"), part)
    load = Load(store, jobs=20)
    async with load.worked_on(proxy.dsn):
        pass
    assert loss.happened.is_set()
    assert len(store.workers()) == (1 if part == "request" else 0)
    assert [line for line in complaints(caplog) if "its lease will run out" in line]
