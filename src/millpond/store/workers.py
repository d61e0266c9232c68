"""The workers' own rows: announcing one, saying that it lives, taking it away, listing them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from millpond.store.statement import Row, Statement


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker as the database knows it."""

    id: str
    name: str
    queues: list[str]
    executors: list[str]
    started_at: datetime
    beat_age: float
    """Seconds since its last beat."""
    alive: bool
    """Whether its lease still runs."""


def register(
    schema: str, worker_id: UUID, *, lease: float, name: str, queues: Iterable[str], executors: Iterable[str]
) -> Statement[int]:
    """Announce a worker; returns its number."""
    return Statement(
        "register_worker",
        schema,
        {"id": worker_id, "lease": lease, "name": name, "queues": list(queues), "executors": list(executors)},
        lambda rows: int(rows[0][0]),
    )


def beat(schema: str, worker_id: UUID, *, lease: float) -> Statement[bool]:
    """Say that the worker lives, for one more lease; False when its row is gone."""
    return Statement("beat_worker", schema, {"id": worker_id, "lease": lease}, lambda rows: bool(rows))


def retire(schema: str, worker_id: UUID) -> Statement[bool]:
    """Take the worker's row away; False when it was gone already."""
    return Statement("retire_worker", schema, {"id": worker_id}, lambda rows: bool(rows))


def listing(schema: str) -> Statement[list[WorkerRow]]:
    """Every worker that has a row."""

    def decode(rows: Sequence[Row]) -> list[WorkerRow]:
        return [WorkerRow(*row) for row in rows]

    return Statement("list_workers", schema, {}, decode)
