"""Taking jobs, and giving them back: the statements of a job's owner."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from uuid import UUID

import msgspec

from millpond.job import ClaimToken, Job, JobId
from millpond.outcome import Settlement
from millpond.store.channel import channel
from millpond.store.statement import Row, Statement

MAX_CLAIMS = 2**32 - 1
"""Claims of one registration; then the worker registers anew, for a new number."""

_SMALLEST_RING = 100
"""Tenants that even a small claim looks at, so that those without room or claimable jobs do not hide the others."""


def claim_token(number: int, count: int) -> ClaimToken:
    """A token that no other claim ever has: the worker's number, never given twice, and its count of claims."""
    return ClaimToken(number << 32 | count)


_BY_ID = attrgetter("id")
"""Whoever waits for the locks of several rows takes them in this order, so that no two wait for each other."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one claim statement brought."""

    jobs: list[Job]
    cursor: str
    """Where the next turn begins: after this tenant."""
    more: bool
    """Whether to claim again at once: the batch was full, or some tenant or stretch of the ring was cut short."""


def claim(
    schema: str,
    *,
    queue: str,
    size: int,
    cursor: str,
    rooms: Mapping[str, int],
    default_room: int,
    executors: Sequence[str],
    worker_id: UUID,
    token: ClaimToken,
) -> Statement[Turn]:
    """Claim at most `size` jobs of one queue, tenants in turn; `rooms` bounds what each tenant may give."""

    def decode(rows: Sequence[Row]) -> Turn:
        stand = rows[0]
        return Turn([Job(*(*row, queue, token)) for row in rows[1:]], cursor=stand[1], more=bool(stand[4]))

    return Statement(
        "claim_jobs",
        schema,
        {
            "queue": queue,
            "size": size,
            "cursor": cursor,
            "ring_size": max(size, _SMALLEST_RING),
            "tenants": list(rooms),
            "rooms": list(rooms.values()),
            "default_room": default_room,
            "executors": list(executors),
            "worker_id": worker_id,
            "claim_token": token,
        },
        decode,
    )


def settle(schema: str, settlements: Sequence[Settlement]) -> Statement[list[JobId]]:
    """Write what became of attempts. Returns the ids that were no longer held by their claim: stale."""
    wake = any(s.state not in ("completed", "cancelled", "discarded") for s in settlements)
    in_order = sorted(settlements, key=_BY_ID)
    return Statement(
        "settle_jobs",
        schema,
        {"outcomes": msgspec.json.encode(in_order).decode(), "channel": channel(schema), "wake": wake},
        lambda rows: [JobId(row[0]) for row in rows if row[0] is not None],
    )


def release(schema: str, *, worker_id: UUID, token: ClaimToken) -> Statement[int]:
    """Give back what a claim took whose answer never came; returns how many jobs."""
    return Statement(
        "release_claim", schema, {"worker_id": worker_id, "claim_token": token}, lambda rows: int(rows[0][0])
    )


def complete(schema: str, job: Job) -> Statement[bool]:
    """Complete one job in the transaction of the caller; False when the claim is lost."""
    return Statement("complete_job", schema, {"id": job.id, "claim_token": job.claim_token}, _any_row)


def unfinished(schema: str, *, queues: Iterable[str], executors: Iterable[str]) -> Statement[bool]:
    """Whether something is claimable, running, or waiting for a retry."""
    return Statement(
        "find_unfinished",
        schema,
        {"queues": list(queues), "executors": list(executors)},
        lambda rows: bool(rows[0][0]),
    )


def _any_row(rows: Sequence[Row]) -> bool:
    return bool(rows)
