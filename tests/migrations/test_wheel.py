"""An installed wheel, outside of this repository: it carries the migrations, and the command that runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from millpond.store import migrations
from millpond.testing.database import Database


def test_the_command_of_an_installed_wheel_migrates(empty: Database, installed: Path, tmp_path: Path) -> None:
    def millpond(*arguments: str) -> str:
        return run(installed, tmp_path, installed / "bin" / "millpond", "migrate", *arguments)

    where = ("--dsn", empty.dsn, "--schema", 'We ird"x')
    assert "pending" in millpond("status", *where)
    millpond("up", *where)
    assert not migrations.status(empty.dsn, 'We ird"x').pending
    assert "pending" not in millpond("status", *where)
    assert "is gone" in millpond("down", "-n", "99", *where)
    assert "CREATE TABLE" in millpond("sql")


def test_the_code_that_ran_was_the_wheels(installed: Path, tmp_path: Path) -> None:
    told = run(
        installed,
        tmp_path,
        sys.executable,
        "-c",
        "import millpond.shipped as s; print(s.__file__, s.shipped('migrations'), sep='\\n')",
    )
    assert all(Path(line).is_relative_to(installed) for line in told.splitlines())


def run(installed: Path, folder: Path, *command: str | Path) -> str:
    """What a command says, with the installed wheel before everything else; it has to succeed."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
