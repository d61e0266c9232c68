"""A worker that dies between any two of its statements, or in the middle of one, loses nothing."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from millpond import Client, ExecutorRegistry, JobContext, Worker, WorkerSettings
from millpond.testing.database import Database, Databases
from tests.proof.hands import Hands
from tests.proof.oracle import SESSION, Oracle
from tests.proof.spawning import Process, Spawner
from tests.proof.test_reaper import silence, vanish

AT_ONCE: Final = 3
"""Processes that play at the same time; the machine has few cores."""

POINTS: Final = tuple(
    f"{statement}:{phase}:1"
    for statement in (
        "register_worker",
        "claim_jobs",
        "settle_jobs(completed)",
        "settle_jobs(available)",
        "promote_jobs",
        "bury_workers",
        "COMMIT",
        "reap_jobs",
        "beat_worker",
        "retire_worker",
    )
    for phase in ("before", "sent", "after")
)
"""Those of the short form: the first time of each statement that writes."""


class Play(NamedTuple):
    """One process on its way to its last point, or to its end."""

    last: str | None
    database: Database
    oracle: Oracle
    process: Process
    points: Path
    stage: contextlib.ExitStack


@pytest.fixture
def theatre(millpond_databases: Databases, spawner: Spawner, tmp_path: Path) -> Theatre:
    return Theatre(millpond_databases, spawner, tmp_path)


class Theatre:
    """Plays the scene, each time on another database, and looks at what is left of it."""

    def __init__(self, databases: Databases, spawner: Spawner, folder: Path) -> None:
        self._databases = databases
        self._spawner = spawner
        self._folder = folder
        self._plays = 0

    def play_all(self, lasts: list[str | None]) -> Iterator[list[str]]:
        """Play once for each of these last points, a few at a time; the points that each came to."""
        under_way: deque[Play] = deque()
        waiting = deque(lasts)
        try:
            while under_way or waiting:
                while waiting and len(under_way) < AT_ONCE:
                    under_way.append(self._begin(waiting.popleft()))
                yield self._end(under_way.popleft())
        finally:
            for play in under_way:
                play.process.send(signal.SIGKILL)
                play.process.wait()
                play.stage.close()

    def _begin(self, last: str | None) -> Play:
        self._plays += 1
        points = self._folder / f"{self._plays}.points"
        with contextlib.ExitStack() as stack:
            database = stack.enter_context(self._databases.migrated())
            oracle = Oracle(database)
            oracle.install()
            set_the_stage(database)
            process = self._spawner.start(
                "tests.proof.crashing:play", database.dsn, last, str(points), env={"MILLPOND_DSN": database.dsn}
            )
            return Play(last, database, oracle, process, points, stack.pop_all())
        raise AssertionError

    def _end(self, play: Play) -> list[str]:
        with play.stage:
            status = play.process.wait()
            assert status == (0 if play.points.exists() else -signal.SIGKILL), (play.last, play.process.said())
            finish(play.database)
            check(play)
            play.oracle.judge()
        return play.points.read_text("utf-8").splitlines() if play.points.exists() else []


def set_the_stage(database: Database) -> None:
    """Jobs of every kind, and two workers that are lost: one whose lease is over, one whose row is gone."""
    client = Client()
    with contextlib.closing(database.connect(autocommit=True, application_name=SESSION)) as connection:
        lost = [Hands(database, connection) for _ in range(2)]
        for hands, end in zip(lost, (silence, vanish), strict=True):
            client.enqueue_many(connection, [client.job({}, tenant="lost", executor="quick") for _ in range(2)])
            hands.claim_of("quick")
            with database.connect() as meddler:
                end(meddler, hands)
        client.enqueue_many(connection, [client.job({}, tenant=tenant, executor="quick") for tenant in "abc"])
        client.enqueue(connection, {}, tenant="a", executor="fails once")
        client.enqueue(connection, {}, tenant="b", executor="quick", delay=0.1)


def finish(database: Database) -> None:
    """Time passes, so that the lease of the dead is over; a healthy worker does what is left."""
    with database.connect() as meddler:
        meddler.execute("UPDATE millpond.workers SET expires_at = now() - interval '1 s'")
        meddler.execute("UPDATE millpond.duties SET next_at = now()")
    settings = WorkerSettings(exit_when_done=True, poll_interval=0.05, base_backoff=0.01, max_backoff=0.01)
    asyncio.run(Worker(database.dsn, healthy(), settings=settings).run())


def healthy() -> ExecutorRegistry:
    """Executors that do what they should."""
    registry = ExecutorRegistry()

    async def work(ctx: JobContext, args: Any) -> None: ...

    for key in ("quick", "fails once", "hangs"):
        registry.register(key, work)
    return registry


def check(play: Play) -> None:
    """Nothing is lost; nothing was done twice but by the death of the process, or because it should be tried again."""
    with play.database.connect() as connection:
        states = dict(connection.execute("SELECT state, count(*) FROM millpond.jobs GROUP BY state").fetchall())
        assert set(states) == {"completed"}, (play.last, states)
        assert states["completed"] >= 9, (play.last, states)
        unexplained = connection.execute(UNEXPLAINED, {"pid": play.process.pid}).fetchall()
        assert unexplained == [], (play.last, unexplained)
        overcharged = connection.execute(OVERCHARGED).fetchall()
        assert overcharged == [], (play.last, overcharged)


UNEXPLAINED: Final = """
SELECT s.job_id, s.attempt, m.new_state, w.name
FROM proof.starts AS s
JOIN proof.moves AS m ON m.job_id = s.job_id AND m.old_token = s.claim_token AND m.old_state = 'running'
JOIN proof.workers AS w ON w.id = m.old_worker
WHERE m.new_state = 'available' AND m.new_attempt = m.old_attempt
    AND NOT (w.gone_by = 'millpond upkeep' AND s.pid = %(pid)s)
"""
"""Starts of which nothing came, and which were charged, though it was not the process that died which made them."""

OVERCHARGED: Final = """
SELECT j.id, j.attempt, j.errors
FROM millpond.jobs AS j
WHERE j.attempt <> 1 + coalesce(jsonb_array_length(j.errors), 0)
"""
"""Attempts that are neither the last one, nor explained by an entry of the history."""


def test_the_points_are_all_there(theatre: Theatre) -> None:
    """Each of the short form is come to; and the scene has what it should have."""
    (points,) = theatre.play_all([None])
    assert sorted(set(POINTS) - set(points)) == []
    print(f"{len(points)} points")


def test_a_worker_may_die_wherever_it_writes(theatre: Theatre) -> None:
    assert [points for points in theatre.play_all(list(POINTS)) if points] == []


@pytest.mark.storm
def test_a_worker_may_die_anywhere(theatre: Theatre) -> None:
    (points,) = theatre.play_all([None])
    again = [points for points in theatre.play_all(list(points)) if points]
    print(f"{len(points)} crash points, {len(again)} not come to")
    assert len(again) < len(points) / 5
