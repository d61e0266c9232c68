"""The reaper: gives back what lost workers hold, all of it and nothing else, whatever stands in between."""

from __future__ import annotations

import logging
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from millpond import ExecutorRegistry, JobContext
from millpond.job import JobState
from millpond.testing.database import Database
from tests.proof.conftest import NewHands
from tests.proof.hands import Hands
from tests.worker.support import Store, eventually, working

LEASE: dict[str, Any] = {"stale_timeout": 2.0, "beat_interval": 0.2}


def silence(connection: psycopg.Connection[Any], worker: Hands) -> None:
    """Its lease is over."""
    connection.execute(
        "UPDATE millpond.workers SET expires_at = now() - interval '1 s' WHERE id = %s", [worker.worker_id]
    )


def vanish(connection: psycopg.Connection[Any], worker: Hands) -> None:
    """Its row is gone, and nobody knows why."""
    connection.execute("DELETE FROM millpond.workers WHERE id = %s", [worker.worker_id])


def states(connection: psycopg.Connection[Any]) -> dict[str, int]:
    return dict(connection.execute("SELECT state, count(*) FROM millpond.jobs GROUP BY state").fetchall())


def row(connection: psycopg.Connection[Any], job_id: int) -> dict[str, Any]:
    found = connection.cursor(row_factory=dict_row).execute("SELECT * FROM millpond.jobs WHERE id = %s", [job_id])
    one = found.fetchone()
    assert one is not None
    return one


@pytest.fixture
def other(new_hands: NewHands) -> Hands:
    """The hands of a worker that will be lost."""
    return new_hands()


@pytest.mark.parametrize("end", [silence, vanish])
def test_what_a_lost_worker_held_is_available_again_and_charged(
    hands: Hands, other: Hands, onlooker: psycopg.Connection[Any], end: Any
) -> None:
    hands.enqueue({"a": 3, "b": 2})
    (kept, *_) = hands.claim(1)
    held = other.claim()
    end(onlooker, other)
    assert hands.bury() == ([other.worker_id] if end is silence else [])
    reaped = hands.reap()
    assert {job.id for job in reaped} == {job.id for job in held}
    assert {(job.state, job.worker_id) for job in reaped} == {(JobState.AVAILABLE, other.worker_id)}
    assert states(onlooker) == {"running": 1, "available": 4}
    assert row(onlooker, kept.id)["state"] == "running"
    again = row(onlooker, held[0].id)
    assert (again["attempt"], again["claim_token"], again["worker_id"]) == (1, None, None)
    (error,) = again["errors"]
    assert (error["type"], error["attempt"], error["worker"]) == ("WorkerLost", 1, str(other.worker_id))


def test_the_last_attempt_is_discarded(hands: Hands, other: Hands, onlooker: psycopg.Connection[Any]) -> None:
    (job_id,) = hands.enqueue({"a": 1}, max_attempts=2)
    for attempt, state in ((1, "available"), (2, "discarded")):
        other.register()
        (job,) = other.claim()
        assert job.attempt == attempt
        vanish(onlooker, other)
        assert [each.state for each in hands.reap()] == [state]
    gone = row(onlooker, job_id)
    assert gone["finalized_at"] is not None
    assert [error["attempt"] for error in gone["errors"]] == [1, 2]


def test_the_first_error_and_the_last_ones_are_kept(
    hands: Hands, other: Hands, onlooker: psycopg.Connection[Any]
) -> None:
    (job_id,) = hands.enqueue({"a": 1}, max_attempts=100)
    for _ in range(25):
        other.register()
        other.claim()
        vanish(onlooker, other)
        hands.reap()
    kept = [error["attempt"] for error in row(onlooker, job_id)["errors"]]
    assert len(kept) == 20
    assert kept[-1] == 25


def test_progress_behind_any_number_of_rows_that_are_held_rightly(
    hands: Hands, other: Hands, onlooker: psycopg.Connection[Any]
) -> None:
    size = 50
    hands.enqueue({"early": 10 * size})
    assert len(hands.claim(10 * size)) == 10 * size  # lower ids, lower places on the disk
    hands.enqueue({"late": 2 * size})
    held = other.claim(2 * size)
    vanish(onlooker, other)
    lost = hands.lost(size)
    assert len(lost) == size
    assert {job.id for job in hands.reap(lost)} == set(lost)
    assert {job.id for job in hands.reap()} == {job.id for job in held} - set(lost)
    assert states(onlooker) == {"running": 10 * size, "available": 2 * size}


def test_more_lost_workers_than_a_batch(hands: Hands, new_hands: NewHands, onlooker: psycopg.Connection[Any]) -> None:
    """Each holds one job, and lives and lost ones alternate."""
    hands.enqueue({"a": 60})
    other = new_hands()
    lost = []
    for number in range(60):
        other.register()
        (job,) = other.claim(1)
        if number % 2:
            vanish(onlooker, other)
            lost.append(job.id)
    found: list[int] = []
    while ids := hands.lost(7):
        found += [job.id for job in hands.reap(ids)]
    assert sorted(found) == sorted(lost)
    assert states(onlooker) == {"running": 30, "available": 30}


def test_a_row_that_somebody_has_locked_waits_alone(
    hands: Hands, other: Hands, onlooker: psycopg.Connection[Any]
) -> None:
    hands.enqueue({"a": 5})
    locked, *free = other.claim()
    vanish(onlooker, other)
    with onlooker.transaction():
        onlooker.execute("SELECT FROM millpond.jobs WHERE id = %s FOR UPDATE", [locked.id])
        assert {job.id for job in hands.reap()} == {job.id for job in free}
    assert [job.id for job in hands.reap()] == [locked.id]


async def test_a_worker_reaps_what_it_could_not_run(
    database: Database, other: Hands, onlooker: psycopg.Connection[Any]
) -> None:
    """Its executors and its queues are others."""
    other.enqueue({"a": 5})
    other.claim()
    silence(onlooker, other)
    async with working(Store(database), _registry("something else"), queues=("elsewhere",), **LEASE):
        await eventually(lambda: states(onlooker) == {"available": 5})


async def test_a_lost_job_is_back_within_the_lease_and_an_interval(
    database: Database, other: Hands, onlooker: psycopg.Connection[Any]
) -> None:
    other.enqueue({"a": 1})
    async with working(Store(database), _registry("something else"), **LEASE):
        other.register(lease=1.0)
        other.claim()
        await eventually(lambda: states(onlooker) == {"available": 1})
    took = onlooker.execute(
        "SELECT extract(epoch FROM m.at - w.came_at)"
        " FROM proof.moves AS m JOIN proof.workers AS w ON w.id = m.old_worker"
    ).fetchone()
    assert took is not None
    assert 1.0 < took[0] < 1.0 + LEASE["stale_timeout"] / 2 + 1.0  # the lease, the interval, a slow machine


async def test_a_row_that_cannot_be_taken_back_stays_alone(
    database: Database, other: Hands, onlooker: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    other.enqueue({"a": 1_200})
    held = other.claim(1_200)
    bad = held[7].id, held[1_100].id
    onlooker.execute(
        f"ALTER TABLE millpond.jobs ADD CONSTRAINT no_way CHECK (id NOT IN {bad} OR state <> 'available') NOT VALID"
    )
    vanish(onlooker, other)
    with caplog.at_level(logging.ERROR):
        async with working(Store(database), _registry("work"), **LEASE):
            await eventually(lambda: states(onlooker) == {"running": 2, "completed": 1_198})
            turns = _turns(onlooker)
            await eventually(lambda: _turns(onlooker) > turns)  # the next turn meets them again
            onlooker.execute("ALTER TABLE millpond.jobs DROP CONSTRAINT no_way")
            await eventually(lambda: states(onlooker) == {"completed": 1_200})
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert all(str(job_id) in " ".join(said) for job_id in bad)
    assert all("no_way" in words for words in said)


async def test_a_due_row_that_cannot_become_available_holds_up_no_other(
    database: Database, hands: Hands, onlooker: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Here it is a trigger of the user's that is against it."""
    (bad, *_) = hands.enqueue({"a": 1_500}, delay=3_600)
    onlooker.execute("UPDATE millpond.jobs SET scheduled_at = now() - interval '1 s'")
    onlooker.execute(
        "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$"
    )
    onlooker.execute(
        "CREATE TRIGGER refuse BEFORE UPDATE ON millpond.jobs FOR EACH ROW"
        f" WHEN (old.id = {bad}) EXECUTE FUNCTION public.refuse()"
    )
    with caplog.at_level(logging.ERROR):
        async with working(Store(database), _registry("work"), **LEASE):
            await eventually(lambda: states(onlooker) == {"scheduled": 1, "completed": 1_499})
            onlooker.execute("DROP TRIGGER refuse ON millpond.jobs")
            await eventually(lambda: states(onlooker) == {"completed": 1_500})
    (said,) = [record.getMessage() for record in caplog.records]
    assert f"Job {bad} " in said
    assert "not this one" in said


def _turns(connection: psycopg.Connection[Any]) -> Any:
    """When the next turn of the reaper is: it moves with each."""
    found = connection.execute("SELECT next_at FROM millpond.duties WHERE name = 'reap'").fetchone()
    assert found is not None
    return found[0]


def _registry(key: str) -> ExecutorRegistry:
    registry = ExecutorRegistry()

    async def work(ctx: JobContext, args: Any) -> None: ...

    registry.register(key, work)
    return registry
