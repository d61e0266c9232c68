"""`millpond demo`, as a process: what it does, prints, keeps, leaves behind, and the status with which it leaves."""

from __future__ import annotations

import re
import secrets
import signal
import subprocess
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner

from millpond.cli.app import app
from millpond.testing.database import Database
from tests.examples.support import (
    DEADLINE,
    MARK,
    MILLPOND,
    demo,
    environment,
    kept,
    marked,
    on_terminal,
    terminal,
    wait_for,
)

FILES = """
    SELECT package, count(*), min(times_read), max(times_read),
        sum(lines), sum(functions), sum(classes), sum(documented)
    FROM stdlib_index.files GROUP BY package ORDER BY package
"""
TREE = [("alpha", 2, 1, 1, 6, 2, 1, 2), ("beta", 1, 1, 1, 1, 0, 0, 0), ("single", 1, 1, 1, 2, 1, 0, 1)]
COLOUR = re.compile(r"\x1b\[(?:[0-9]+;)*3[0-9]")
STATES = "SELECT state, count(*) FROM millpond.jobs GROUP BY state ORDER BY state"


def test_a_broken_file_is_discarded_until_it_is_mended(tree: Path, folder: Path) -> None:
    broken = tree / "beta" / "broken.py"
    broken.write_text("def f(: pass")
    done = demo("--path", tree, "--keep", folder)
    assert (done.returncode, done.stderr) == (1, "")
    assert "4 of 5 files read, 1 failed" in done.stdout
    assert f"discarded {broken}\n  at attempt 2: SyntaxError: invalid syntax (broken.py, line 1)\n" in done.stdout
    with kept(folder) as conn:
        assert conn.execute(STATES).fetchall() == [("completed", 4), ("discarded", 1)]
        (errors,) = conn.execute("SELECT errors FROM millpond.jobs WHERE state = 'discarded'").fetchall()[0]
        assert [(error["attempt"], error["type"]) for error in errors] == [(1, "SyntaxError"), (2, "SyntaxError")]

    broken.write_text("def f(): pass")
    done = demo("--path", tree, "--keep", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 job enqueued" in done.stdout
    assert "discarded" not in done.stdout
    assert f"millpond demo --keep {folder}" in done.stdout


def test_a_slice_of_the_standard_library_is_indexed() -> None:
    done = demo("--limit", "120", "--workers", "1", MILLPOND_DSN="host=/nowhere")  # which is somebody's real database
    assert (done.returncode, done.stderr) == (0, "")
    assert "120 of 120 files read" in done.stdout
    assert re.search(r"all \d+ +120 +[\d,]{5,} ", done.stdout)
    assert re.search(r"turns  test, the biggest with \d\d files, had", done.stdout)
    assert re.search(r"speed  120 jobs in \d+\.\d s: \d+ per second", done.stdout)
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "\x1b" not in done.stdout


def test_an_existing_database_is_used(tree: Path, database: Database) -> None:
    done = demo("--path", tree, "--dsn", database.url("psycopg"))
    assert (done.returncode, done.stderr) == (0, "")
    with database.connect() as conn:
        assert conn.execute(FILES).fetchall() == TREE
        assert conn.execute(STATES).fetchall() == [("completed", 4)]


def test_interrupted_it_leaves_nothing_running_and_goes_on_later(folder: Path) -> None:
    mark = secrets.token_hex(8)
    said = interrupted(signal.SIGINT, r"files read", mark, "--limit", "200", "--keep", str(folder))
    assert re.search(r"Interrupted: \d+ jobs? still to do", said)
    assert f"millpond demo --keep {folder}" in said
    wait_for(lambda: not marked(mark))

    done = demo("--limit", "200", "--keep", folder)
    assert (done.returncode, done.stderr) == (0, "")
    with kept(folder) as conn:
        totals = conn.execute("SELECT count(*), min(times_read), max(times_read) FROM stdlib_index.files").fetchall()
        assert totals == [(200, 1, 1)]
        assert conn.execute(STATES).fetchall() == [("completed", 200)]


def test_terminated_it_leaves_nothing_running() -> None:
    mark = secrets.token_hex(8)
    interrupted(signal.SIGTERM, r" [1-9]\d* of [\d,]+ files read", mark, "--workers", "1")
    wait_for(lambda: not marked(mark))


def interrupted(number: signal.Signals, when: str, mark: str, *arguments: str) -> str:
    """Run the demo until it has said this, and send it this signal; what it said from there on."""
    with subprocess.Popen(
        [*MILLPOND, "demo", *arguments],
        env=environment(**{MARK: mark}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if re.search(when, line):
                break
        assert any("postgres" in command for command in marked(mark))
        running.send_signal(number)
        said, _ = running.communicate(timeout=DEADLINE)
    assert running.returncode == 130
    return said


def test_on_a_terminal_it_draws(tree: Path) -> None:
    status, said = on_terminal("--path", str(tree))
    assert status == 0
    assert "━━━━" in said
    assert COLOUR.search(said)
    assert said.count("\x1b[?25l") == said.count("\x1b[?25h") == 1  # the cursor is hidden, and comes back
    assert "files read" not in said


def test_on_a_terminal_a_kept_database_stays_up_to_be_looked_at(tree: Path, folder: Path) -> None:
    arguments = ("--path", str(tree), "--keep", str(folder))
    with terminal(*arguments, COLUMNS="200", NO_COLOR="1") as running:
        assert running.stdin is not None
        assert running.stdout is not None
        said = ""
        while (found := re.search(r'millpond status --dsn "([^"]+)"', said)) is None:
            said += running.stdout.readline().decode()
        with psycopg.connect(found[1]) as conn:
            assert conn.execute(FILES).fetchall() == TREE
        running.stdin.write(b"\x03")
        running.stdin.flush()
        assert running.wait(DEADLINE) == 0
    assert "━━━━" in said
    assert not COLOUR.search(said)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--keep", "somewhere", "--dsn", "host=/nowhere"), "--keep"),
        (("--path", "/nowhere/at/all"), "does not exist"),
        (("--limit", "0"), "--limit"),
        (("--workers", "0"), "--workers"),
    ],
)
def test_what_cannot_be_meant_is_usage(arguments: tuple[str, ...], complaint: str) -> None:
    refused = CliRunner().invoke(app, ["demo", *arguments])
    assert refused.exit_code == 2
    assert complaint in refused.output


def test_a_database_out_of_reach_is_one_sentence() -> None:
    done = demo("--dsn", "host=127.0.0.1 port=1")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "port 1" in done.stderr


def test_a_folder_that_cannot_be_is_one_sentence() -> None:
    done = demo("--keep", "/proc/nowhere")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "/proc/nowhere" in done.stderr


def test_an_empty_folder_is_no_success(tmp_path: Path, database: Database) -> None:
    done = demo("--path", tmp_path, "--dsn", database.dsn)
    assert (done.returncode, done.stderr) == (1, f"There is no .py file in {tmp_path}.\n")
