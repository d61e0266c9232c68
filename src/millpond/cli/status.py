"""`millpond status`: what is in the store, and who works on it."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from millpond.cli.options import Dsn, Schema
from millpond.job import JobState
from millpond.store import counts, workers
from millpond.store.connections import run
from millpond.store.counts import JobCount
from millpond.store.database import check, connected
from millpond.store.workers import WorkerRow


def status(
    dsn: Dsn,
    schema: Schema,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
) -> None:
    """Count the jobs by state, list the workers, and name the executor keys that nobody serves."""
    with connected(dsn) as connection:
        check(connection, schema)
        jobs, alive = run(connection, counts.count(schema)), run(connection, workers.listing(schema))
    if as_json:
        typer.echo(json.dumps(_as_json(jobs, alive), indent=2))
    else:
        _show(Console(), jobs, alive)


def unserved(jobs: list[JobCount]) -> list[JobCount]:
    """Jobs that wait for an executor that no live worker has."""
    return [row for row in jobs if not row.served and not row.state.final and row.state is not JobState.RUNNING]


def _as_json(jobs: list[JobCount], alive: list[WorkerRow]) -> dict[str, Any]:
    states: dict[str, int] = defaultdict(int)
    for row in jobs:
        states[row.state.value] += row.jobs
    return {
        "states": states,
        "jobs": [asdict(row) for row in jobs],
        "unserved": [{"queue": row.queue, "executor": row.executor, "jobs": row.jobs} for row in unserved(jobs)],
        "workers": [{**asdict(row), "started_at": row.started_at.isoformat()} for row in alive],
    }


def _show(console: Console, jobs: list[JobCount], alive: list[WorkerRow]) -> None:
    totals: dict[tuple[str, JobState], int] = defaultdict(int)
    for row in jobs:
        totals[row.queue, row.state] += row.jobs
    table = Table("queue", "state", Column("jobs", justify="right"), title="Jobs", title_justify="left")
    for (queue, state), total in sorted(totals.items()):
        table.add_row(escape(queue), state.value, f"{total:,}")
    console.print(table if totals else "No jobs.")
    table = Table("worker", "queues", "executors", "started", "last beat", title="Workers", title_justify="left")
    for worker in alive:
        age = f"{worker.beat_age:.0f} s ago" if worker.alive else f"[red]lost, {worker.beat_age:.0f} s ago"
        started = f"{worker.started_at:%Y-%m-%d %H:%M:%S}"
        queues, executors = escape(", ".join(worker.queues)), escape(", ".join(worker.executors))
        table.add_row(escape(worker.name), queues, executors, started, age)
    console.print(table if alive else "No worker is registered.")
    for row in unserved(jobs):
        console.print(
            f"{row.jobs:,} {row.state.value} jobs in queue {row.queue!r} wait for executor {row.executor!r}, "
            "which no live worker has.",
            style="yellow",
            markup=False,
        )
