"""The application by hand, with the commands of its README."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import stdlib_index

from millpond.testing.database import Database
from tests.examples.support import DEADLINE, environment

FOLDER = Path(stdlib_index.__file__).parent


def commands() -> list[str]:
    """What the README's first block has people run, without the set-up."""
    block = re.findall(r"```sh\n(.*?)```", (FOLDER / "README.md").read_text("utf-8"), re.DOTALL)[0]
    lines = [line.partition("#")[0].strip() for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith(("pip install", "export"))]


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    """Where the words `python` and `millpond` lead to those that run these tests."""
    made = tmp_path / "bin"
    made.mkdir()
    for name, arguments in (("python", ""), ("millpond", "-c 'from millpond.cli import main; main()'")):
        (made / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        (made / name).chmod(0o755)
    return made


def run(command: str, database: Database, bin_folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=FOLDER.parent,
        env=environment(MILLPOND_DSN=database.dsn, PATH=f"{bin_folder}{os.pathsep}{os.environ['PATH']}"),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def test_it_runs_as_its_readme_says(database: Database, bin_folder: Path) -> None:
    said = []
    for command in commands():
        quick = command.replace("enqueue", "enqueue --limit 60")
        done = run(quick, database, bin_folder)
        assert done.returncode == 0, (quick, done.stderr)
        said.append(done.stdout)
    assert said[1] == "60 files are new or have changed.\n"
    assert "test " in said[3]
    assert re.search(r"all \d+ +60 +", said[3])
    with database.connect() as conn:
        assert conn.execute("SELECT count(*), min(times_read), max(times_read) FROM stdlib_index.files").fetchall() == [
            (60, 1, 1)
        ]
        assert conn.execute("SELECT state, count(*) FROM millpond.jobs GROUP BY 1").fetchall() == [("completed", 60)]


def test_a_file_that_does_not_parse_is_reported(database: Database, bin_folder: Path, tree: Path) -> None:
    (tree / "beta" / "broken.py").write_text("def f(: pass")
    assert run(f"python -m stdlib_index enqueue --path {tree}", database, bin_folder).returncode == 0
    assert run(commands()[2], database, bin_folder).returncode == 1
    watched = run("python -m stdlib_index watch", database, bin_folder)
    assert "4 of 5 files read, 1 failed; 3 of 3 packages done" in watched.stdout
    reported = run("python -m stdlib_index report", database, bin_folder)
    assert reported.returncode == 1
    assert f"discarded {tree}/beta/broken.py\n  at attempt 2: SyntaxError: " in reported.stdout


def test_without_a_database_it_says_so(database: Database, bin_folder: Path) -> None:
    nowhere = Database("host=127.0.0.1 port=1 user=nobody")
    done = run("python -m stdlib_index report", nowhere, bin_folder)
    assert done.returncode != 0
    assert "port 1 failed" in done.stderr
