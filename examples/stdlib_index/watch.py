"""Show how far the index is, as it grows: bars on a terminal, a line a second anywhere else."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection
from psycopg.rows import class_row
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

_PROGRESS = """
    SELECT f.package, count(*) AS files,
        count(*) FILTER (WHERE f.times_read > 0) AS read,
        count(*) FILTER (WHERE j.state IN ('discarded', 'cancelled')) AS failed
    FROM stdlib_index.files AS f
    LEFT JOIN millpond.jobs AS j ON j.id = f.job_id
    GROUP BY f.package
    ORDER BY count(*) DESC, f.package
"""

_FRAME = 0.1
_LINE = 1.0
"""Seconds between two looks: for a picture, and for a line."""

_BARS = 10
_FRAME_LINES = 7
"""Lines of the picture that are not a package's bar."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a package is, or several together."""

    package: str
    files: int
    read: int
    failed: int

    @property
    def done(self) -> bool:
        """Whether no file waits any more."""
        return self.read + self.failed >= self.files


def together(name: str, parts: list[Progress]) -> Progress:
    """The sums of some packages."""
    return Progress(
        name,
        files=sum(part.files for part in parts),
        read=sum(part.read for part in parts),
        failed=sum(part.failed for part in parts),
    )


async def watch(dsn: str, console: Console, ended: asyncio.Event) -> None:
    """Look again and again, until every file is done with or `ended` is set; then for a last time."""
    started = time.monotonic()
    async with await AsyncConnection.connect(dsn, autocommit=True) as conn:
        with _display(console) as (show, pause):
            while True:
                packages = await look(conn)
                show(packages, time.monotonic() - started)
                if ended.is_set() or all(package.done for package in packages):
                    return
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), pause)


async def look(conn: AsyncConnection[Any]) -> list[Progress]:
    """Where every package is now, the biggest first."""
    return await (await conn.cursor(row_factory=class_row(Progress)).execute(_PROGRESS)).fetchall()


def line(packages: list[Progress], seconds: float) -> str:
    """The progress in one line."""
    total = together("all", packages)
    done = sum(package.done for package in packages)
    failed = f", {total.failed:,} failed" if total.failed else ""
    return (
        f"{seconds:5.1f} s  {total.read:,} of {total.files:,} files read{failed}; "
        f"{done:,} of {len(packages):,} packages done"
    )


def picture(packages: list[Progress], seconds: float, bars: int = _BARS) -> Group:
    """The progress as bars: the biggest packages, the others together, and all."""
    shown, others = packages[:bars], packages[bars:]
    grid = Table.grid(padding=(0, 2))
    grid.add_column(min_width=12, max_width=20, overflow="ellipsis", no_wrap=True)
    grid.add_column(width=28)
    grid.add_column(min_width=14, justify="right", no_wrap=True)
    grid.add_column(style="red", no_wrap=True)
    for package in shown:
        grid.add_row(*_row(package))
    if others:
        grid.add_row(*_row(together(f"{len(others):,} others", others)))
    grid.add_row()
    grid.add_row(*_row(together("all", packages)))
    begun = sum(package.read > 0 for package in packages)
    done = sum(package.done for package in packages)
    below = f"{len(packages):,} packages, {begun:,} begun, {done:,} done · {seconds:.0f} s"
    return Group("", grid, Text(below, "dim"))


def _row(progress: Progress) -> tuple[Text, ProgressBar, str, str]:
    bar = ProgressBar(progress.files, progress.read + progress.failed)
    failed = f"{progress.failed:,} failed" if progress.failed else ""
    return Text(progress.package), bar, f"{progress.read:,} of {progress.files:,}", failed


@contextlib.contextmanager
def _display(console: Console) -> Iterator[tuple[Callable[[list[Progress], float], None], float]]:
    """What shows a progress, and the seconds until the next."""
    if not console.is_terminal or console.is_dumb_terminal:
        yield lambda packages, seconds: console.print(line(packages, seconds), highlight=False, soft_wrap=True), _LINE
        return
    bars = max(1, min(_BARS, console.height - _FRAME_LINES))
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield lambda packages, seconds: live.update(picture(packages, seconds, bars), refresh=True), _FRAME
