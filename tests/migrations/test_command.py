"""`millpond migrate`, and `alembic` in this repository: what they do, and how they say that they cannot."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo

from millpond.cli import main
from millpond.errors import DatabaseUnsuitable
from millpond.store import database, migrations
from millpond.testing.database import Database, Databases
from millpond.testing.server import Server
from tests.migrations.conftest import ROOT, Said
from tests.migrations.support import objects

Millpond = Callable[..., Said]

NEWEST = migrations.history()[-1].revision
STEPS = len(migrations.history())


def test_up_status_down(empty: Database, millpond: Millpond) -> None:
    to = ("--dsn", empty.dsn, "--schema", 'We ird"x')
    assert millpond("migrate", "status", *to).out.count("pending ") == STEPS
    assert millpond("migrate", "status", "--check", *to).status == 1

    said = millpond("migrate", "up", *to)
    assert (said.status, said.err) == (0, "")
    assert f"is at {NEWEST} ({STEPS} step" in said.out
    assert "(0 steps)" in millpond("migrate", "up", *to).out
    assert millpond("migrate", "status", *to).out.count("applied ") == STEPS
    assert millpond("migrate", "status", "--check", *to).status == 0

    assert "(1 step)" in millpond("migrate", "down", *to).out
    assert "is gone" in millpond("migrate", "down", "-n", "99", *to).out
    with empty.connect() as connection:
        assert not [where for _, where, _ in objects(connection) if where == 'We ird"x']


def test_sql_needs_no_database(millpond: Millpond, empty: Database) -> None:
    up = millpond("migrate", "sql", "--schema", 'We ird"x')
    down = millpond("migrate", "sql", "--schema", 'We ird"x', "--down")
    assert (up.status, down.status) == (0, 0)
    with empty.connect(autocommit=True) as connection:
        before = objects(connection)
        connection.execute(up.out)
        assert not migrations.status(empty.dsn, 'We ird"x').pending
        connection.execute(down.out)
        assert objects(connection) == before


def test_the_environment_says_where(empty: Database, millpond: Millpond, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLPOND_DSN", empty.url("psycopg"))
    monkeypatch.setenv("MILLPOND_SCHEMA", "elsewhere")
    assert millpond("migrate", "up").status == 0
    assert not migrations.status(empty.dsn, "elsewhere").pending


@pytest.mark.parametrize("form", ["conninfo", "uri", "psycopg", "psycopg2", "asyncpg"])
def test_every_form_of_dsn(empty: Database, millpond: Millpond, form: str) -> None:
    dsn = empty.dsn if form == "conninfo" else empty.url(None if form == "uri" else form)
    assert millpond("migrate", "status", "--dsn", dsn).status == 0


def test_alembic_in_the_repository(empty: Database) -> None:
    environment = {"MILLPOND_DSN": empty.dsn, "MILLPOND_SCHEMA": "We ird;--schema"}
    for command in (["upgrade", "head"], ["current", "--check-heads"], ["downgrade", "base"], ["upgrade", "head"]):
        done = alembic(environment, *command)
        assert done.returncode == 0, done.stderr
    assert not migrations.status(empty.dsn, "We ird;--schema").pending


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({}, "Say which database: set MILLPOND_DSN."),
        ({"MILLPOND_DSN": "host=/nowhere"}, "Cannot connect to the default database at /nowhere:"),
        ({"MILLPOND_DSN": "host=/nowhere", "MILLPOND_SCHEMA": "pg_mine"}, "schema = 'pg_mine': must not start with"),
    ],
)
def test_alembic_in_the_repository_complains_in_a_sentence(environment: dict[str, str], sentence: str) -> None:
    done = alembic(environment, "upgrade", "head")
    assert done.returncode != 0
    assert f"FAILED: {sentence}" in done.stdout
    assert "Traceback" not in done.stderr


def alembic(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """`alembic`, as a user would run it at the root of this repository."""
    return subprocess.run(
        [Path(sys.executable).with_name("alembic"), *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


# ── what stands in the way ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("command", [["up"], ["down"], ["status"]])
@pytest.mark.parametrize(
    ("dsn", "sentence"),
    [
        ("host=/nowhere dbname=x", "Cannot connect to database 'x' at /nowhere: No such file or directory."),
        (
            "postgresql://me:hush@127.0.0.1:1/x",
            "Cannot connect to database 'x' at 127.0.0.1, port 1: Connection refused.",
        ),
        ("postgresql://me:hu@sh@127.0.0.1:1/x", "dsn = (not shown): has an @ within its password: write it as %40."),
        ("postgresql+psycopg://me:hu@sh@127.0.0.1:1/x", "dsn = (not shown): has an @ within its password:"),
        ("postgresql://me:hush@[::1/x", "dsn = (not shown): must be a conninfo"),
        ("password=hush hush", "dsn = (not shown): must be a conninfo"),
        ("host=127.0.0.1 pasword=hush", "dsn = (not shown): must be a conninfo"),
        ("mysql://me:hush@127.0.0.1/x", "dsn = (not shown): must be a conninfo"),
        ("", "Cannot connect to the default database at the local socket:"),
    ],
)
def test_a_database_that_is_not_there(
    millpond: Millpond, monkeypatch: pytest.MonkeyPatch, command: list[str], dsn: str, sentence: str
) -> None:
    monkeypatch.setenv("PGPORT", "1")
    said = millpond("migrate", *command, "--dsn", dsn)
    assert said.status == 1
    assert said.err.startswith(sentence)
    assert said.err.count("\n") == 1
    assert "hu" not in said.out + said.err


def test_a_wrong_password(millpond: Millpond, millpond_server: Server) -> None:
    for dsn in (
        make_conninfo(millpond_server.tcp_dsn(), password="hush"),
        f"postgresql+asyncpg://postgres:hush@127.0.0.1:{millpond_server.port}/postgres",
    ):
        said = millpond("migrate", "up", "--dsn", dsn)
        assert said.status == 1
        assert "password authentication failed for user" in said.err
        assert said.err.count("\n") == 1
        assert "hush" not in said.out + said.err


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_is_not_utf8(millpond_databases: Databases, millpond: Millpond, encoding: str) -> None:
    with millpond_databases.empty(encoding) as latin:
        said = millpond("migrate", "up", "--dsn", latin.dsn)
        assert said.status == 1
        assert said.err.startswith(f"The database's encoding is {encoding}; millpond needs one made with")
        assert said.err.count("\n") == 1
        with latin.connect() as connection, pytest.raises(DatabaseUnsuitable, match="encoding"):
            database.check(connection, "millpond")


def test_a_server_that_is_too_old(empty: Database, millpond: Millpond, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "MINIMUM_SERVER", 99)
    said = millpond("migrate", "up", "--dsn", empty.dsn)
    assert said.status == 1
    assert said.err.endswith("; millpond needs 99 or newer.\n")
    with empty.connect() as connection:
        assert not [where for _, where, _ in objects(connection) if where == "millpond"]


def test_usage_is_told_apart_from_failure(millpond: Millpond) -> None:
    assert millpond("migrate", "up").status == 2
    assert millpond("migrate", "down", "-n", "0", "--dsn", "host=/nowhere").status == 2


def test_without_the_extra_one_sentence_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith(("typer", "millpond.cli."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "typer", None)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert capsys.readouterr().err == 'The command line needs its extra: pip install "millpond[cli]".\n'
