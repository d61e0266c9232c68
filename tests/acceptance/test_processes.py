"""The worker as people run it: a process, real signals, another process that takes over."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

from millpond.testing.database import Database
from tests.worker.support import Store

HERE = Path(__file__).parent
MILLPOND = (sys.executable, "-c", "from millpond.cli import main; main()")
DEADLINE = 30.0
QUICK_LEASE = ("--stale-timeout", "1.5", "--beat-interval", "0.2")


@pytest.fixture
def store(database: Database) -> Store:
    made = Store(database)
    made.execute("CREATE TABLE ledger (job_id bigint, attempt integer, pid integer)")
    return made


@contextlib.contextmanager
def process(store: Store, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A worker process; killed after the body, if it still runs."""
    started = subprocess.Popen(
        [*MILLPOND, "worker", "app:registry", *arguments],
        cwd=HERE,
        env=os.environ | {"MILLPOND_DSN": store.database.dsn},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def millpond(store: Store, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A command that runs to its end."""
    return subprocess.run(
        [*MILLPOND, *arguments],
        cwd=HERE,
        env=os.environ | {"MILLPOND_DSN": store.database.dsn} | env,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def eventually(fact: Callable[[], Any], alive: subprocess.Popen[str] | None = None) -> Any:
    """Wait until `fact()` is true; what it gave. Fails at once when the process that should make it true has ended."""
    deadline = time.monotonic() + DEADLINE
    while not (seen := fact()):
        assert time.monotonic() < deadline, "the fact did not come true"
        if alive is not None and alive.poll() is not None:
            assert alive.stderr is not None
            raise AssertionError(f"the process has ended with {alive.returncode}: {alive.stderr.read()}")
        time.sleep(0.02)  # between two looks
    return seen


def starts(store: Store) -> list[tuple[int, int]]:
    """Every attempt that has begun: (job, attempt)."""
    with store.database.connect() as connection:
        return connection.execute("SELECT job_id, attempt FROM ledger ORDER BY job_id, attempt").fetchall()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_runs_jobs_and_leaves_by_signal_with_0(store: Store, number: signal.Signals) -> None:
    ids = store.enqueue_many("note", {"a": 5, "b": 5})
    with process(store) as worker:
        eventually(lambda: store.states() == {"completed": 10}, worker)
        worker.send_signal(number)
        assert worker.wait(DEADLINE) == 0
    assert starts(store) == [(job_id, 1) for job_id in ids]
    assert store.workers() == []


def test_the_jobs_of_a_killed_worker_run_elsewhere(store: Store) -> None:
    job_id = store.enqueue("hang once")
    with process(store, *QUICK_LEASE) as first:
        eventually(lambda: starts(store) == [(job_id, 1)], first)
        with process(store, *QUICK_LEASE) as second:
            eventually(lambda: len(store.workers()) == 2, second)
            first.kill()
            eventually(lambda: store.row(job_id)["state"] == "completed")
            second.terminate()
            assert second.wait(DEADLINE) == 0
    row = store.row(job_id)
    assert starts(store) == [(job_id, 1), (job_id, 2)]
    assert row["attempt"] == 2
    assert [error["type"] for error in row["errors"]] == ["WorkerLost"]


def test_a_job_that_kills_its_worker_starts_max_attempts_times_and_is_discarded(store: Store) -> None:
    job_id = store.enqueue("kill", max_attempts=2)
    for _ in range(2):
        with process(store, *QUICK_LEASE) as worker:
            assert worker.wait(DEADLINE) == -signal.SIGKILL
    with process(store, *QUICK_LEASE) as worker:
        eventually(lambda: store.row(job_id)["state"] == "discarded", worker)
    assert starts(store) == [(job_id, 1), (job_id, 2)]
    assert [error["type"] for error in store.row(job_id)["errors"]] == ["WorkerLost"] * 2


def stop_once(worker: subprocess.Popen[str]) -> None:
    """Send SIGTERM, and wait until the worker has heard it."""
    worker.terminate()
    assert worker.stderr is not None
    eventually(lambda: "SIGTERM: stop." in worker.stderr.readline())  # type: ignore[union-attr]


def test_a_second_signal_ends_the_grace_and_hands_the_job_back(store: Store) -> None:
    job_id = store.enqueue("hang", max_attempts=1)
    with process(store, "--grace", "600") as worker:
        eventually(lambda: starts(store), worker)
        stop_once(worker)
        worker.terminate()
        assert worker.wait(DEADLINE) == 3
    row = store.row(job_id)
    assert (row["state"], row["attempt"], row["errors"]) == ("available", 0, None)


def test_a_third_signal_kills(store: Store) -> None:
    store.enqueue("swallow")
    with process(store, "--grace", "600") as worker:
        eventually(lambda: starts(store), worker)
        stop_once(worker)
        worker.terminate()
        eventually(lambda: "SIGTERM: hurry." in worker.stderr.readline())  # type: ignore[union-attr]
        worker.terminate()
        assert worker.wait(DEADLINE) == -signal.SIGTERM


def test_a_grace_that_ends_cuts_short_and_says_so(store: Store) -> None:
    job_id = store.enqueue("hang", max_attempts=1)
    with process(store, "--grace", "0.1") as worker:
        eventually(lambda: starts(store), worker)
        worker.terminate()
        assert worker.wait(DEADLINE) == 3
    assert store.row(job_id)["state"] == "available"


def test_until_done_leaves_when_nothing_is_left(store: Store) -> None:
    store.enqueue_many("note", {"a": 5})
    assert millpond(store, "worker", "app:registry", "--until-done").returncode == 0
    assert store.states() == {"completed": 5}


def test_until_done_says_that_a_job_was_discarded(store: Store) -> None:
    store.enqueue("note", max_attempts=1)
    store.execute("DROP TABLE ledger")
    assert millpond(store, "worker", "app:registry", "--until-done").returncode == 1
    assert store.states() == {"discarded": 1}


def test_the_lease_can_be_set_by_the_environment_and_is_logged(store: Store) -> None:
    result = millpond(
        store, "worker", "app:registry", "--until-done", MILLPOND_STALE_TIMEOUT="77", MILLPOND_BEAT_INTERVAL="7"
    )
    assert result.returncode == 0
    assert "its lease is 77 s" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "env", "sentence"),
    [
        (["worker", "nowhere.jobs:registry"], {}, "no module 'nowhere'"),
        (["worker", "app"], {}, "module:name"),
        (["worker", "app:ledger"], {}, "not an ExecutorRegistry"),
        (["worker", "app:missing"], {}, "'missing' in app is nothing"),
        (["worker", "app:registry", "--workers", "0"], {}, "worker_count"),
        (["worker", "app:registry", "--log-level", "loud"], {}, "log_level"),
        (["worker", "app:registry", "--schema", "elsewhere"], {}, "millpond migrate up"),
        (["worker", "app:registry"], {"MILLPOND_DSN": "host=127.0.0.1 port=1 password=hush"}, "127.0.0.1"),
        (["status", "--schema", "elsewhere"], {}, "millpond migrate up"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_work_is_one_sentence(
    store: Store, arguments: list[str], env: dict[str, str], sentence: str
) -> None:
    result = millpond(store, *arguments, **env)
    assert result.returncode == 1
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
    assert "hush" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_status_counts_and_names_what_nobody_serves(store: Store) -> None:
    store.enqueue("note")
    store.enqueue("nobody [red]has")
    result = millpond(store, "status", "--json")
    shown = json.loads(result.stdout)
    assert shown["states"] == {"available": 2}
    assert {row["executor"] for row in shown["unserved"]} == {"note", "nobody [red]has"}
    with process(store, "--queue", "default") as worker:
        eventually(lambda: store.states() == {"available": 1, "completed": 1}, worker)
        shown = json.loads(millpond(store, "status", "--json").stdout)
        assert [row["executor"] for row in shown["unserved"]] == ["nobody [red]has"]
        assert [row["alive"] for row in shown["workers"]] == [True]
        text = millpond(store, "status").stdout
    assert "nobody [red]has" in text
    assert "completed" in text


def test_jobs_in_child_processes_charge_nobody_else_when_they_die(store: Store) -> None:
    good = store.enqueue("in a child")
    bad = store.enqueue("kill the child", max_attempts=1)
    with process(store) as worker:
        eventually(lambda: store.states() == {"completed": 1, "discarded": 1}, worker)
        with store.database.connect() as connection:
            pids = {row[0] for row in connection.execute("SELECT pid FROM ledger").fetchall()}
        assert worker.pid not in pids
        worker.terminate()
        assert worker.stderr is not None
        log = worker.stderr.read()
        assert worker.wait(DEADLINE) == 0
    assert store.row(good)["attempt"] == 1
    assert store.row(bad)["errors"][0]["type"] == "ProcessDied"
    assert "came too late" not in log  # that the job was completed in place is no surprise


@pytest.mark.parametrize("arguments", [["status"], ["worker", "app:registry"], ["migrate", "status"]], ids=str)
@pytest.mark.parametrize("rights", [[], ["USAGE ON SCHEMA millpond"]], ids=["no rights", "usage"])
def test_a_role_that_may_not_is_told_so_in_one_sentence(store: Store, arguments: list[str], rights: list[str]) -> None:
    role = f"weak_{os.getpid()}"
    try:
        store.execute(f"CREATE ROLE {role} LOGIN")
        for right in rights:
            store.execute(f"GRANT {right} TO {role}")
        dsn = make_conninfo(store.database.dsn, options=f"-c role={role}")
        result = millpond(store, *arguments, MILLPOND_DSN=dsn)
    finally:
        store.execute(f"DROP OWNED BY {role}")
        store.execute(f"DROP ROLE {role}")
    assert result.returncode == 1
    assert "permission denied" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_role_that_may_not_register_is_told_so(store: Store) -> None:
    role = f"half_{os.getpid()}"
    try:
        store.execute(f"CREATE ROLE {role} LOGIN")
        store.execute(f"GRANT USAGE ON SCHEMA millpond TO {role}")
        store.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA millpond TO {role}")
        dsn = make_conninfo(store.database.dsn, options=f"-c role={role}")
        result = millpond(store, "worker", "app:registry", "--log-level", "error", MILLPOND_DSN=dsn)
    finally:
        store.execute(f"DROP OWNED BY {role}")
        store.execute(f"DROP ROLE {role}")
    assert result.returncode == 1
    assert "permission denied for sequence workers_number_seq" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
