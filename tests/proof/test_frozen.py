"""A process that is stopped for longer than its lease is taken for dead; when it goes on, it can change nothing."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from millpond import Client
from millpond.testing.database import Database
from tests.proof.races import eventually
from tests.proof.spawning import Process, Spawner
from tests.proof.test_reaper import row

LEASE = ("--stale-timeout", "1.5", "--beat-interval", "0.2", "--poll-interval", "0.1")


@contextlib.contextmanager
def worker(spawner: Spawner, database: Database) -> Iterator[Process]:
    """A worker's process beside the body; it leaves by itself afterwards."""
    process = spawner.start("tests.proof.spawning:work", *LEASE, env={"MILLPOND_DSN": database.dsn})
    try:
        yield process
        process.send(signal.SIGTERM)
        assert process.wait() in (0, 3), process.said()  # 3: it was cut short, and says so
    finally:
        process.send(signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("key", ["async", "sync", "effect"])
def test_it_comes_too_late_and_works_on(
    key: str, database: Database, spawner: Spawner, onlooker: psycopg.Connection[Any]
) -> None:
    client = Client()
    args = {"seconds": 0.5}
    job_id = client.enqueue(onlooker, args, tenant="a", executor=key)
    with worker(spawner, database) as frozen:
        eventually(lambda: pids(onlooker, job_id) == [frozen.pid])
        frozen.send(signal.SIGSTOP)
        (before,) = workers(onlooker, frozen)
        with worker(spawner, database) as other:
            eventually(lambda: row(onlooker, job_id)["state"] == "completed")
            done = row(onlooker, job_id)
            assert pids(onlooker, job_id) == [frozen.pid, other.pid]
        frozen.send(signal.SIGCONT)
        (after,) = eventually(lambda: [each for each in workers(onlooker, frozen) if each != before])
        assert after != before
        again = client.enqueue(onlooker, {"seconds": 0.0}, tenant="a", executor=key)
        eventually(lambda: row(onlooker, again)["state"] == "completed")
    assert row(onlooker, job_id) == done
    assert done["attempt"] == 2
    if key == "effect":
        effects = onlooker.execute("SELECT job_id FROM proof.effects ORDER BY job_id").fetchall()
        assert effects == [(job_id,), (again,)]


def pids(connection: psycopg.Connection[Any], job_id: int) -> list[int]:
    """The processes that have begun this job, in order."""
    query = "SELECT pid FROM proof.starts WHERE job_id = %s ORDER BY place"
    return [pid for (pid,) in connection.execute(query, [job_id]).fetchall()]


def workers(connection: psycopg.Connection[Any], process: Process) -> list[Any]:
    """The ids under which this process is registered now."""
    query = "SELECT id FROM millpond.workers WHERE name LIKE %s"
    return [worker_id for (worker_id,) in connection.execute(query, [f"%:{process.pid}"]).fetchall()]
