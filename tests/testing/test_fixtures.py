"""What the plugin gives tests, and what it holds against them: run by pytest itself, in a project of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from millpond.store.dsn import conninfo
from millpond.testing.database import Database, Databases

CLEAN = """
async def test_async(millpond_database, millpond_nothing_left):
    async with await millpond_database.connect_async() as connection:
        assert connection.info.dbname == millpond_database.name

def test_sync(millpond_database, millpond_nothing_left):
    with millpond_database.connect() as connection:
        assert connection.execute("SELECT count(*) FROM millpond.jobs").fetchone() == (0,)
        connection.execute("INSERT INTO millpond.jobs (tenant_id, executor, args) VALUES ('t', 'e', '{}')")

def test_pure(millpond_nothing_left):
    pass
"""

LEAVING = """
import asyncio
import threading

kept = []
event = threading.Event()

def test_connection(millpond_database):
    kept.append(millpond_database.connect(application_name="left connection"))

async def test_task(millpond_nothing_left):
    kept.append(asyncio.create_task(asyncio.Event().wait(), name="left task"))

def test_thread(millpond_nothing_left):
    threading.Thread(target=event.wait, name="left thread").start()

def test_our_daemon(millpond_nothing_left):
    threading.Thread(target=event.wait, name="millpond left daemon", daemon=True).start()

def test_after():
    event.set()
"""

CONFTEST = """
from millpond.testing import database, leftovers

pytest_plugins = ["millpond.testing.plugin"]
database._GRACE = leftovers._GRACE = 0.3
"""


def run_pytest(folder: Path, tests: str, *arguments: str, dsn: str) -> subprocess.CompletedProcess[str]:
    """pytest, in a project of a user who loads the plugin."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(tests)
    (folder / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\naddopts = -p no:cacheprovider"
    )
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *arguments],
        cwd=folder,
        env={**os.environ, "MILLPOND_TEST_DSN": dsn, "MILLPOND_TEST_SCHEMA": "millpond"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_clean_tests_pass_and_those_with_a_database_are_marked(tmp_path: Path, database: Database) -> None:
    done = run_pytest(tmp_path, CLEAN, "-m", "database", dsn=database.dsn)
    assert "2 passed, 1 deselected" in done.stdout, done.stdout


def test_tests_that_leave_something_fail_and_say_what(tmp_path: Path, database: Database) -> None:
    done = run_pytest(tmp_path, LEAVING, dsn=database.dsn)
    assert "5 passed, 4 errors" in done.stdout, done.stdout
    assert "('left connection', idle)" in done.stdout
    assert "name='left task'" in done.stdout
    assert "Threads were left running: left thread" in done.stdout
    assert "Threads were left running: millpond left daemon" in done.stdout


def test_each_database_is_new_and_goes_afterwards(millpond_databases: Databases) -> None:
    with millpond_databases.migrated() as first, millpond_databases.migrated() as second:
        assert first.name != second.name
        with first.connect() as connection:
            connection.execute(
                sql.SQL("INSERT INTO {}.jobs (tenant_id, executor, args) VALUES ('t', 'e', '{{}}')").format(
                    sql.Identifier(first.schema)
                )
            )
        with second.connect() as connection:
            counted = connection.execute(sql.SQL("SELECT count(*) FROM {}.jobs").format(sql.Identifier(second.schema)))
            assert counted.fetchone() == (0,)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        first.connect()


async def test_every_driver_finds_it(database: Database) -> None:
    for driver in ("psycopg", "psycopg2"):
        engine = create_engine(database.url(driver))
        with engine.connect() as connection:
            assert connection.scalar(text("SELECT current_database()")) == database.name
        engine.dispose()
    for driver in ("psycopg", "asyncpg"):
        async_engine = create_async_engine(database.url(driver))
        async with async_engine.connect() as async_connection:
            assert await async_connection.scalar(text("SELECT current_database()")) == database.name
        await async_engine.dispose()
    with psycopg.connect(conninfo(database.url("asyncpg"))) as plain:
        assert plain.info.dbname == database.name
