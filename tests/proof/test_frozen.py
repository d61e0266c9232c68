"""A process that is stopped for longer than its lease is taken for dead; when it goes on, it can change nothing."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

import psycopg

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


def test_it_comes_too_late_and_works_on(
    database: Database, spawner: Spawner, onlooker: psycopg.Connection[Any]
) -> None:
    """On the loop, in a thread, and in a transaction of the executor's own."""
    client, keys = Client(), ("async", "sync", "effect")
    ids = [client.enqueue(onlooker, {"seconds": 1.0}, tenant="a", executor=key) for key in keys]

    def begun_by(*processes: Process) -> bool:
        return all(pids(onlooker, job_id) == [process.pid for process in processes] for job_id in ids)

    def completed(*jobs: int) -> bool:
        return all(row(onlooker, job_id)["state"] == "completed" for job_id in jobs)

    with worker(spawner, database) as frozen:
        eventually(lambda: begun_by(frozen))
        frozen.send(signal.SIGSTOP)
        (before,) = workers(onlooker, frozen)
        with worker(spawner, database) as other:
            eventually(lambda: completed(*ids))
            assert begun_by(frozen, other)
        done = [row(onlooker, job_id) for job_id in ids]
        frozen.send(signal.SIGCONT)
        eventually(lambda: [each for each in workers(onlooker, frozen) if each != before])
        again = [client.enqueue(onlooker, {"seconds": 0.0}, tenant="a", executor=key) for key in keys]
        eventually(lambda: completed(*again))
    assert [row(onlooker, job_id) for job_id in ids] == done
    assert [each["attempt"] for each in done] == [2, 2, 2]
    effects = onlooker.execute("SELECT job_id FROM proof.effects ORDER BY job_id").fetchall()
    assert effects == [(ids[-1],), (again[-1],)]


def pids(connection: psycopg.Connection[Any], job_id: int) -> list[int]:
    """The processes that have begun this job, in order."""
    query = "SELECT pid FROM proof.starts WHERE job_id = %s ORDER BY place"
    return [pid for (pid,) in connection.execute(query, [job_id]).fetchall()]


def workers(connection: psycopg.Connection[Any], process: Process) -> list[Any]:
    """The ids under which this process is registered now."""
    query = "SELECT id FROM millpond.workers WHERE name LIKE %s"
    return [worker_id for (worker_id,) in connection.execute(query, [f"%:{process.pid}"]).fetchall()]
