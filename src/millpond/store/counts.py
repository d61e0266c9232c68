"""How many jobs there are, of which kind: for people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millpond.job import JobState
from millpond.store.statement import Row, Statement


@dataclass(frozen=True, slots=True)
class JobCount:
    """Jobs alike in queue, state and executor key."""

    queue: str
    state: JobState
    executor: str
    jobs: int
    served: bool
    """Whether a live worker has this key and takes from this queue."""


def count(schema: str) -> Statement[list[JobCount]]:
    """Count every job. Reads the whole table."""

    def decode(rows: Sequence[Row]) -> list[JobCount]:
        return [JobCount(row[0], JobState(row[1]), row[2], row[3], row[4]) for row in rows]

    return Statement("count_jobs", schema, {}, decode)
