"""What keeps the table honest: promoting due jobs, taking back those of dead workers, finding those nobody can run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from millpond.job import JobId, JobState
from millpond.store.channel import channel
from millpond.store.statement import Row, Statement


@dataclass(frozen=True, slots=True)
class Promotion:
    """What one promotion did."""

    promoted: int
    next_due: float | None
    """Seconds until the next job is due; None: none waits."""


@dataclass(frozen=True, slots=True)
class Reaped:
    """A job taken back from a worker that is no more."""

    id: JobId
    state: JobState
    worker_id: UUID


@dataclass(frozen=True, slots=True)
class Unclaimable:
    """Executor keys that wait in a queue and that this worker does not have, with the jobs seen of each."""

    seen: dict[str, int]
    cursor: str | None
    """Where to look on; None: the ring is through."""


def promote(
    schema: str, *, size: int, refused: Iterable[JobId] = (), ids: Sequence[JobId] | None = None
) -> Statement[Promotion]:
    """Make due jobs available, apart from `refused`; of `ids` alone, when given."""
    return Statement(
        "promote_jobs",
        schema,
        {
            "size": size,
            "refused": list(refused),
            "ids": None if ids is None else list(ids),
            "channel": channel(schema),
        },
        lambda rows: Promotion(promoted=rows[0][0], next_due=rows[0][1]),
    )


def due(schema: str, *, size: int, refused: Iterable[JobId] = ()) -> Statement[list[JobId]]:
    """Find due jobs, apart from `refused`."""
    return Statement("find_due_jobs", schema, {"size": size, "refused": list(refused)}, _ids)


def take_duty(schema: str, name: str, *, every: float) -> Statement[bool]:
    """Take the turn of a duty, when it is due and nobody else is at it. In the same transaction as the work."""
    return Statement("take_duty", schema, {"name": name, "every": every}, lambda rows: bool(rows))


def bury(schema: str) -> Statement[list[tuple[UUID, str]]]:
    """Remove workers whose lease is over; returns (id, name)."""
    return Statement("bury_workers", schema, {}, lambda rows: [(row[0], row[1]) for row in rows])


def lost(schema: str, *, size: int, refused: Iterable[JobId] = ()) -> Statement[list[JobId]]:
    """Find jobs that workers hold which are no more, apart from `refused`."""
    return Statement("find_lost_jobs", schema, {"size": size, "refused": list(refused)}, _ids)


def reap(schema: str, ids: Sequence[JobId]) -> Statement[list[Reaped]]:
    """Take back those of these jobs that workers hold which are no more. What is locked is left for the next time."""

    def decode(rows: Sequence[Row]) -> list[Reaped]:
        return [Reaped(JobId(row[0]), JobState(row[1]), row[2]) for row in rows]

    return Statement("reap_jobs", schema, {"ids": list(ids), "channel": channel(schema)}, decode)


def unclaimable(
    schema: str, *, queue: str, executors: Sequence[str], cursor: str = "", ring_size: int = 200, depth: int = 20
) -> Statement[Unclaimable]:
    """Look at the heads of tenants' lines for keys that are none of `executors`."""

    def decode(rows: Sequence[Row]) -> Unclaimable:
        seen = {row[0]: row[1] for row in rows if row[0] is not None}
        return Unclaimable(seen, next(row[2] for row in rows if row[0] is None))

    return Statement(
        "find_unclaimable",
        schema,
        {"queue": queue, "executors": list(executors), "cursor": cursor, "ring_size": ring_size, "depth": depth},
        decode,
    )


def _ids(rows: Sequence[Row]) -> list[JobId]:
    return [JobId(row[0]) for row in rows]
