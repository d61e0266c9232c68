"""Fixtures of the tests of the migrations: an empty database, our command line, a wheel."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from millpond.cli import main
from millpond.testing.database import Database, Databases

ROOT = Path(__file__).parents[2]


class Said(NamedTuple):
    """What a command left with, and said."""

    status: int
    out: str
    err: str


@pytest.fixture
def empty(millpond_databases: Databases) -> Iterator[Database]:
    """A database with nothing in it."""
    with millpond_databases.empty() as database:
        yield database


@pytest.fixture
def millpond(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """The command line, in this process."""

    def run(*arguments: str) -> Said:
        monkeypatch.setattr(sys, "argv", ["millpond", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        return Said(int(left.value.code or 0), *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which a wheel, built from this repository, was installed."""
    built, folder = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)], cwd=ROOT, check=True)
    (wheel,) = built.glob("millpond-*.whl")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps"]
    subprocess.run([*pip, "--target", str(folder), str(wheel)], check=True)
    return folder
