"""Jobs that kill whoever runs them start exactly as often as they may, in the whole fleet, and then never again."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any, Final

import psycopg
import pytest

from millpond import Client
from millpond.testing.database import Database
from tests.proof.races import eventually
from tests.proof.spawning import Process, Spawner
from tests.proof.test_reaper import row

MAX_ATTEMPTS: Final = 3


class Fleet:
    """Two workers, each replaced when it is dead."""

    def __init__(self, database: Database, spawner: Spawner, onlooker: psycopg.Connection[Any]) -> None:
        self._database = database
        self._spawner = spawner
        self._onlooker = onlooker
        self._up: list[Process] = []
        self.ends: list[int] = []

    def keep_up(self) -> None:
        """Replace the dead. Time passes, so that the lease of each is over."""
        for process in [each for each in self._up if each.poll() is not None]:
            self._up.remove(process)
            self.ends.append(process.wait())
            self._onlooker.execute(
                "UPDATE millpond.workers SET expires_at = now() - interval '1 s' WHERE name LIKE %s",
                [f"%:{process.pid}"],
            )
            self._onlooker.execute("UPDATE millpond.duties SET next_at = now()")
        while len(self._up) < 2:
            options = ("--workers", "2", "--stale-timeout", "30", "--poll-interval", "0.05", "--log-level", "warning")
            env = {"MILLPOND_DSN": self._database.dsn}
            self._up.append(self._spawner.start("tests.proof.spawning:work", *options, env=env))

    def until(self, states: dict[str, int]) -> None:
        """Keep up until the jobs are in these states."""

        def come_true() -> bool:
            self.keep_up()
            counted = self._onlooker.execute("SELECT state, count(*) FROM millpond.jobs GROUP BY state").fetchall()
            return dict(counted) == states

        eventually(come_true)

    def leave(self) -> None:
        for process in self._up:
            process.send(signal.SIGTERM)
        for process in self._up:
            process.wait()


@pytest.fixture
def fleet(database: Database, spawner: Spawner, onlooker: psycopg.Connection[Any]) -> Iterator[Fleet]:
    fleet = Fleet(database, spawner, onlooker)
    yield fleet
    fleet.leave()


def enqueue(connection: psycopg.Connection[Any], executor: str, count: int, **options: Any) -> list[int]:
    """Enqueue jobs of a tenant of their own."""
    client = Client()
    args = {"way": executor, "seconds": 0.01}
    key = executor if executor in ("async", "poison apart") else "poison"
    jobs = [client.job(args, tenant=executor, executor=key, **options) for _ in range(count)]
    return list(client.enqueue_many(connection, jobs))


def starts(connection: psycopg.Connection[Any], job_id: int) -> list[int]:
    """The attempts of a job that have begun, anywhere."""
    query = "SELECT attempt FROM proof.starts WHERE job_id = %s ORDER BY place"
    return [attempt for (attempt,) in connection.execute(query, [job_id]).fetchall()]


@pytest.mark.parametrize(
    ("way", "end"), [("SIGKILL", -signal.SIGKILL), ("segfault", -signal.SIGSEGV), ("out of memory", 137)]
)
def test_what_kills_its_worker_starts_as_often_as_it_may_and_is_discarded(
    way: str, end: int, fleet: Fleet, onlooker: psycopg.Connection[Any]
) -> None:
    """What is in the same process is charged too, and runs elsewhere: nobody can tell whether it had begun."""
    (poison,) = enqueue(onlooker, way, 1, max_attempts=MAX_ATTEMPTS, priority=1)
    neighbours = enqueue(onlooker, "async", 20)
    fleet.until({"discarded": 1, "completed": len(neighbours)})
    assert fleet.ends == [end] * MAX_ATTEMPTS
    assert starts(onlooker, poison) == [1, 2, 3]
    assert [error["type"] for error in row(onlooker, poison)["errors"]] == ["WorkerLost"] * MAX_ATTEMPTS
    for neighbour in neighbours:
        after = row(onlooker, neighbour)
        assert after["attempt"] == 1 + len(after["errors"] or []) <= 1 + MAX_ATTEMPTS
        assert {error["type"] for error in after["errors"] or []} <= {"WorkerLost"}


def test_what_kills_a_child_process_is_charged_alone(fleet: Fleet, onlooker: psycopg.Connection[Any]) -> None:
    (poison,) = enqueue(onlooker, "poison apart", 1, max_attempts=2, priority=1)
    neighbours = enqueue(onlooker, "async", 20)
    fleet.until({"discarded": 1, "completed": len(neighbours)})
    assert fleet.ends == []
    assert starts(onlooker, poison) == [1, 2]
    assert [error["type"] for error in row(onlooker, poison)["errors"]] == ["ProcessDied"] * 2
    assert {row(onlooker, neighbour)["attempt"] for neighbour in neighbours} == {1}
