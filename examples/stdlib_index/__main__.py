"""The application's own command line: `python -m stdlib_index enqueue`, `watch`, `report`."""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path

import psycopg
from rich.console import Console

from .enqueue import STDLIB, enqueue
from .report import report, show
from .watch import watch


def main() -> int:
    """Run one command; the exit status is 1 when a file could not be read for good."""
    options = _options()
    dsn = os.environ.get("MILLPOND_DSN", "")
    console = Console()
    with psycopg.connect(dsn, autocommit=True) as conn:
        match options.command:
            case "enqueue":
                console.print(f"{enqueue(conn, options.path, options.limit):,} files are new or have changed.")
            case "watch":
                asyncio.run(watch(dsn, console, asyncio.Event()))
            case _:
                found = report(conn)
                show(console, found)
                return 1 if found.failures else 0
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m stdlib_index", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    adding = commands.add_parser("enqueue", help="find files; record and enqueue those that are new or have changed")
    adding.add_argument("--path", type=Path, default=STDLIB, help="the folder to index (the standard library)")
    adding.add_argument("--limit", type=int, help="at most so many files, taken evenly from all")
    commands.add_parser("watch", help="show the progress until all is done")
    commands.add_parser("report", help="show what was found")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
