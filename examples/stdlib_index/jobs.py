"""The jobs of this application, and what executes them: `millpond worker stdlib_index.jobs:registry`."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path

from psycopg_pool import ConnectionPool

import millpond
from millpond import ExecutorRegistry, JobContext

from .reading import read

registry = ExecutorRegistry()

pool = ConnectionPool(os.environ.get("MILLPOND_DSN", ""), min_size=1, max_size=1, open=False)
"""The application's own connection, one for each process that runs jobs: it runs them one at a time."""

_RECORD = """
    UPDATE stdlib_index.files
    SET times_read = times_read + 1, read_at = now(),
        lines = %(lines)s, functions = %(functions)s, classes = %(classes)s, documented = %(documented)s
    WHERE path = %(path)s AND job_id = %(job_id)s
"""


@millpond.args("index_file", max_attempts=2)  # the second one is for a file that was just being saved
@dataclass(frozen=True)
class IndexFile:
    """Read a file of Python and record what it holds."""

    path: str


@registry.executes(IndexFile, isolation="process")  # parsing holds the interpreter's lock: threads would share one core
def index_file(ctx: JobContext, args: IndexFile) -> None:
    """Count, then record the numbers and complete the job in one transaction: both are there, or neither is."""
    reading = read(Path(args.path).read_bytes(), args.path)
    pool.open()  # at the first job, and not in those that merely import this module
    with pool.connection() as conn:  # commits at the end; an exception rolls back
        conn.execute(_RECORD, {"path": args.path, "job_id": ctx.job.id, **asdict(reading)})
        ctx.complete_in(conn)
