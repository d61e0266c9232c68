"""Inserting jobs: one statement per few thousand of them, each a single JSON parameter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from millpond.job import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, DEFAULT_QUEUE, JobId, NewJob
from millpond.store.channel import channel
from millpond.store.statement import Row, Statement

MAX_ROWS: Final = 5_000
"""Rows of one statement: beyond some thousands a row gets no cheaper, and the caller's locks only live longer."""

MAX_BYTES: Final = 8_388_608
"""Bytes of JSON of one statement, unless a single job has more. Client and server hold it in memory, several times."""


def insert(schema: str, jobs: Iterable[NewJob], *, notify: bool = True) -> Iterator[Statement[list[JobId]]]:
    """The statements that insert these jobs and return their ids, in order; the jobs are consumed as they are sent.

    `notify`: whether each tells the workers; what is told twice in one transaction, Postgres tells once.
    """
    for rows in _batches(map(_ENCODER.encode, jobs)):
        params = {
            "jobs": f"[{b','.join(rows).decode()}]",
            "queue": DEFAULT_QUEUE,
            "priority": DEFAULT_PRIORITY,
            "max_attempts": DEFAULT_MAX_ATTEMPTS,
            "channel": channel(schema),
            "notify": notify,
        }
        yield Statement("insert_jobs", schema, params, _ids)


_ENCODER: Final = msgspec.json.Encoder()


def _batches(rows: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for row in rows:
        if batch and (len(batch) == MAX_ROWS or size + len(row) > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(row)
        size += len(row)
    if batch:
        yield batch


def _ids(rows: Sequence[Row]) -> list[JobId]:
    return [JobId(int(row[0])) for row in rows]  # int: the connection's own loaders may make anything of a bigint
