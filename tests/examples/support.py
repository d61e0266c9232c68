"""What the tests of the examples share: `millpond` as a process, and looks at what it leaves behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from millpond.testing.server import DURABLE, Server

MILLPOND = (sys.executable, "-c", "from millpond.cli import main; main()")
DEADLINE = 60.0
MARK = "MILLPOND_TEST_MARK"


def environment(**more: str) -> dict[str, str]:
    """Ours, without what would lead a command to a database or a style of ours."""
    unwanted = {"MILLPOND_DSN", "MILLPOND_SCHEMA", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"}
    return {name: value for name, value in os.environ.items() if name not in unwanted} | more


def demo(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `millpond demo` to its end, away from any terminal."""
    return subprocess.run(
        [*MILLPOND, "demo", *map(str, arguments)],
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


@contextlib.contextmanager
def kept(folder: Path) -> Iterator[psycopg.Connection[Any]]:
    """A connection to the database that a demo kept."""
    with Server.embedded(folder, DURABLE) as server, psycopg.connect(server.dsn()) as connection:
        yield connection


def wait_for(fact: Callable[[], bool]) -> None:
    """Wait until it is so; fail when it takes too long."""
    deadline = time.monotonic() + DEADLINE
    while not fact():
        assert time.monotonic() < deadline, f"{fact} did not come true"
        time.sleep(0.02)


def marked(mark: str) -> list[str]:
    """The command lines of all processes that inherited this value of MARK."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text("utf-8", "replace").replace("\0", " "))
    return found


_TERMINAL = """
import os, pty, sys
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))
"""


@contextlib.contextmanager
def terminal(*arguments: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """`millpond demo` on a terminal of 80 by 24, whose keyboard and screen are the pipes."""
    size = {"TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
    running = subprocess.Popen(
        [sys.executable, "-c", _TERMINAL, *MILLPOND, "demo", *arguments],
        env=environment(**size | env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with running:
        yield running


def on_terminal(*arguments: str, **env: str) -> tuple[int, str]:
    """Run it there to its end: the exit status, and all that the screen was sent."""
    with terminal(*arguments, **env) as running:
        assert running.stdout is not None
        said = running.stdout.read()
        return running.wait(DEADLINE), said.decode()
