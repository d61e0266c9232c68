"""Many processes migrate at once, one is killed, another is in the way: the schema comes out right all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any

import psycopg
import pytest

from millpond.errors import StoreError
from millpond.store import migrations, migrator
from millpond.testing.database import Database
from tests.migrations.support import eventually, objects

ROOT = Path(__file__).parents[2]
STEPS = [step.revision for step in migrations.history()]


def alembic(database: Database, schema: str, *arguments: str, count: int = 1) -> subprocess.Popen[str]:
    """So many processes of `alembic`, with our configuration."""
    return subprocess.Popen(
        [sys.executable, Path(__file__).with_name("replicas.py"), str(count), "-c", ROOT / "alembic.ini", *arguments],
        env={**os.environ, "MILLPOND_DSN": database.dsn, "MILLPOND_SCHEMA": schema},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("start", [None, *STEPS[:-1]])
def test_sixteen_replicas_converge(empty: Database, start: str | None) -> None:
    if start:
        output, _ = alembic(empty, 'We ird"x', "upgrade", start).communicate(timeout=60)
        assert output.split() == ["0"]
    output, said = alembic(empty, 'We ird"x', "upgrade", "head", count=16).communicate(timeout=60)
    assert output.split() == ["0"] * 16, said
    ran = [line for line in said.splitlines() if "Running upgrade" in line]
    assert len(ran) == len(set(ran)) == len(STEPS) - (STEPS.index(start) + 1 if start else 0)
    assert not migrations.status(empty.dsn, 'We ird"x').pending


class Blocker:
    """A transaction that holds what the first migration needs: the name of a table."""

    def __init__(self, database: Database) -> None:
        self.connection = database.connect()
        self.connection.execute("CREATE SCHEMA IF NOT EXISTS blocked")
        self.connection.commit()
        self.connection.execute("CREATE TABLE blocked.workers ()")

    def waiting(self, watcher: psycopg.Connection[Any]) -> list[Any]:
        """Who waits for it, says Postgres."""
        return watcher.execute(
            "SELECT pid FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))",
            [self.connection.info.backend_pid],
        ).fetchall()

    def leave(self) -> None:
        self.connection.close()


@pytest.fixture
def blocker(empty: Database) -> Iterator[Blocker]:
    blocker = Blocker(empty)
    yield blocker
    blocker.leave()


def test_after_a_killed_migrator_the_next_run_completes(empty: Database, blocker: Blocker) -> None:
    with empty.connect(autocommit=True) as watcher:
        before = objects(watcher)
        killed = alembic(empty, "blocked", "upgrade", "head")
        eventually(lambda: blocker.waiting(watcher))
        (child,) = children(killed.pid)
        os.kill(child, 9)
        assert killed.communicate(timeout=60)[0].split() == ["-9"]
        blocker.leave()
        eventually(lambda: objects(watcher) == before)  # once the server has noticed

        output, said = alembic(empty, "blocked", "upgrade", "head").communicate(timeout=60)
        assert output.split() == ["0"], said
        assert not migrations.status(empty.dsn, "blocked").pending


def children(pid: int) -> list[int]:
    """The processes that this one started and that still run."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_lock_that_is_not_to_be_had_soon_is_given_way_to_and_tried_again(
    empty: Database, blocker: Blocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(migrator, "LOCK_TIMEOUT", 50)
    monkeypatch.setattr(migrator, "pause", pauses.append)
    upgrading = Thread(target=migrations.upgrade, args=(empty.dsn, "blocked"))
    upgrading.start()
    eventually(lambda: len(pauses) >= 2)
    blocker.leave()
    upgrading.join(20)
    assert not migrations.status(empty.dsn, "blocked").pending


def test_a_lock_that_is_never_to_be_had_is_reported(
    empty: Database, blocker: Blocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(migrator, "LOCK_TIMEOUT", 1)
    monkeypatch.setattr(migrator, "pause", pauses.append)
    with empty.connect(autocommit=True) as watcher:
        before = objects(watcher)
        with pytest.raises(StoreError, match=r"^Others kept a lock .* look for long transactions .*\.$"):
            migrations.upgrade(empty.dsn, "blocked")
        assert len(pauses) == 60
        assert objects(watcher) == before


def test_a_connection_that_breaks_is_reported_and_leaves_nothing(empty: Database, blocker: Blocker) -> None:
    with empty.connect(autocommit=True) as watcher:
        before = objects(watcher)
        cut = alembic(empty, "blocked", "upgrade", "head")
        ((pid,),) = eventually(lambda: blocker.waiting(watcher))
        watcher.execute("SELECT pg_terminate_backend(%s)", [pid])
        output, said = cut.communicate(timeout=60)
        assert "FAILED: The database refused: terminating connection due to administrator command" in output
        assert output.split()[-1] != "0"
        assert "Traceback" not in said
        assert objects(watcher) == before


def test_a_migration_of_another_schema_is_not_waited_for(empty: Database, blocker: Blocker) -> None:
    with empty.connect(autocommit=True) as watcher:
        waits = alembic(empty, "blocked", "upgrade", "head")
        eventually(lambda: blocker.waiting(watcher))
        migrations.upgrade(empty.dsn, "free")
        assert waits.poll() is None
        blocker.leave()
        output, said = waits.communicate(timeout=60)
        assert output.split() == ["0"], said
    assert not migrations.status(empty.dsn, "blocked").pending


def test_threads_take_turns(empty: Database) -> None:
    schemas = [f"thread_{number}" for number in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda schema: migrations.upgrade(empty.dsn, schema), schemas * 2))
    assert not any(migrations.status(empty.dsn, schema).pending for schema in schemas)
