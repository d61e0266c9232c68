"""What the index says: the biggest packages, how the turns were shared, and which files could not be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg.rows import class_row
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .fairness import Fairness, fairness

_PACKAGES = """
    SELECT package, count(*) AS files, sum(lines) AS lines, sum(functions) AS functions, sum(classes) AS classes,
        sum(documented)::float / sum(1 + functions + classes) AS coverage
    FROM stdlib_index.files
    WHERE times_read > 0
    GROUP BY ROLLUP (package)
    ORDER BY package IS NULL, sum(lines) DESC, package
"""

_TURNS = "SELECT package FROM stdlib_index.files WHERE times_read > 0 ORDER BY read_at, job_id"
_LINE = "SELECT package FROM stdlib_index.files WHERE times_read > 0 ORDER BY job_id"

_FAILURES = """
    SELECT f.path, j.attempt AS attempts, j.errors -> -1 ->> 'type' AS type, j.errors -> -1 ->> 'message' AS message
    FROM stdlib_index.files AS f
    JOIN millpond.jobs AS j ON j.id = f.job_id
    WHERE j.state = 'discarded'
    ORDER BY f.path
"""

_UNFINISHED = """
    SELECT count(*)
    FROM stdlib_index.files AS f
    JOIN millpond.jobs AS j ON j.id = f.job_id
    WHERE j.finalized_at IS NULL
"""

_SHOWN = 8
"""Packages, and failures, that are listed one by one."""


@dataclass(frozen=True, slots=True)
class Package:
    """The sums of a package, over the files that were read."""

    package: str | None
    """None: all of them."""
    files: int
    lines: int
    functions: int
    classes: int
    coverage: float
    """Docstring coverage: documented modules, functions and classes among all."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A file whose job was discarded, and the last of its errors. The job's row keeps them all."""

    path: str
    attempts: int
    type: str
    message: str


@dataclass(frozen=True, slots=True)
class Report:
    """What is shown."""

    packages: list[Package]
    """The biggest first, and all of them together last; empty when nothing was read."""
    fairness: Fairness | None
    failures: list[Failure]


def report(conn: Connection[Any]) -> Report:
    """Ask the database."""
    packages = conn.cursor(row_factory=class_row(Package)).execute(_PACKAGES).fetchall()
    turns, line = ([package for (package,) in conn.execute(query).fetchall()] for query in (_TURNS, _LINE))
    failures = conn.cursor(row_factory=class_row(Failure)).execute(_FAILURES).fetchall()
    return Report(packages if turns else [], fairness(turns, line), failures)


def unfinished(conn: Connection[Any]) -> int:
    """How many files wait for their job to be done with."""
    (count,) = conn.execute(_UNFINISHED).fetchall()[0]
    return int(count)


def show(console: Console, found: Report) -> None:
    """Print it."""
    if found.packages:
        console.print(_table(found.packages))
    if found.fairness is not None:
        console.print(_in_words(found.fairness))
    for failure in found.failures[:_SHOWN]:
        console.print(Text.assemble(("discarded ", "red"), failure.path), soft_wrap=True)
        console.print(Text(f"  at attempt {failure.attempts}: {failure.type}: {failure.message}"), soft_wrap=True)
    if len(found.failures) > _SHOWN:
        console.print(Text(f"… and {len(found.failures) - _SHOWN:,} more discarded", "red"))


def _table(packages: list[Package]) -> Table:
    *parts, total = packages
    shown = parts[:_SHOWN]
    table = Table(box=box.SIMPLE_HEAD, show_footer=True, pad_edge=False)
    table.add_column("biggest packages", f"all {len(parts):,}", overflow="ellipsis", max_width=24)
    for name, figure in zip(("files", "lines", "functions", "classes", "documented"), _figures(total), strict=True):
        table.add_column(name, figure, justify="right")
    for package in shown:
        table.add_row(Text(package.package or ""), *_figures(package))
    return table


def _figures(package: Package) -> list[str]:
    counts = (package.files, package.lines, package.functions, package.classes)
    return [*(f"{count:,}" for count in counts), f"{package.coverage:.0%}"]


def _in_words(shared: Fairness) -> Table:
    small = (
        f"{shared.biggest}, the biggest with {shared.biggest_files:,} files, had {_times(shared.ahead)} before the "
        f"last of the {shared.packages:,} packages had its first; in order of age it would have had "
        f"{shared.ahead_by_age:,}."
    )
    big = (
        f"While the {shared.compared} biggest all had files waiting, each had {shared.fewest:,} to {shared.most:,} "
        f"turns: Jain's index {shared.index:.3f}, where 1 is perfectly fair."
    )
    grid = Table.grid(padding=(0, 2))
    grid.add_row("turns", Text(small))
    grid.add_row("", Text(big))
    return grid


def _times(turns: int) -> str:
    return "1 turn" if turns == 1 else f"{turns:,} turns"
