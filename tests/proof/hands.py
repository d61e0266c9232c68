"""Does by hand what a worker does, one statement at a time, so that a test decides what comes between two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID, uuid4

import psycopg

from millpond import Client
from millpond.job import ClaimToken, Job, JobId
from millpond.outcome import Outcome, settlement
from millpond.store import claims, upkeep, workers
from millpond.store.connections import run
from millpond.store.statement import Statement
from millpond.store.upkeep import Promotion, Reaped
from millpond.testing.database import Database
from millpond.worker.registration import Registration

T = TypeVar("T")

KEY = "work"


class Hands:
    """A worker's statements on one connection, which may be in a transaction or not."""

    def __init__(self, database: Database, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.schema = database.schema
        self.backoff = 0.0
        self._registration: Registration | None = None
        self._client = Client(schema=database.schema)

    @property
    def pid(self) -> int:
        """The server's process for this connection."""
        return self.connection.info.backend_pid

    @property
    def worker_id(self) -> UUID:
        """Who claims here."""
        return self.registration.worker_id

    @property
    def registration(self) -> Registration:
        """The worker's row; made when it is first needed."""
        return self._registration or self.register()

    def stand_in_for(self, other: Hands) -> None:
        """Be the same worker, on another connection."""
        self._registration = other.registration

    def run(self, statement: Statement[T]) -> T:
        """Run any statement."""
        return run(self.connection, statement)

    def enqueue(self, tenants: Mapping[str, int], **options: Any) -> list[JobId]:
        """Enqueue so many jobs for each tenant."""
        jobs = [
            self._client.job({}, tenant=tenant, executor=KEY, **options)
            for tenant, count in tenants.items()
            for _ in range(count)
        ]
        return list(self._client.enqueue_many(self.connection, jobs))

    def register(self, lease: float = 3_600.0) -> Registration:
        """Announce a worker, anew if there was one."""
        worker_id = uuid4()
        statement = workers.register(
            self.schema, worker_id, lease=lease, name="by hand", queues=["default"], executors=[KEY]
        )
        self._registration = Registration(worker_id, self.run(statement))
        return self._registration

    def claim(self, size: int = 1_000, *, token: ClaimToken | None = None) -> list[Job]:
        """Claim at most so many jobs, of any tenant."""
        return self.run(self.claiming(size, token=token)).jobs

    def claim_of(self, key: str) -> list[Job]:
        """Claim all jobs of another executor."""
        return self.run(self.claiming(key=key)).jobs

    def claiming(self, size: int = 1_000, *, token: ClaimToken | None = None, key: str = KEY) -> Statement[claims.Turn]:
        """The statement of a claim, with the next token."""
        return claims.claim(
            self.schema,
            queue="default",
            size=size,
            cursor="",
            rooms={},
            default_room=size,
            executors=[key],
            worker_id=self.worker_id,
            token=self.registration.next_token() if token is None else token,
        )

    def settle(self, jobs: Sequence[Job], outcome: Outcome) -> list[JobId]:
        """Write what became of these jobs; the ids that were stale."""
        return self.run(self.settling(jobs, outcome))

    def settling(self, jobs: Sequence[Job], outcome: Outcome) -> Statement[list[JobId]]:
        """The statement that writes what became of these jobs."""
        worker = str(self.worker_id)
        return claims.settle(
            self.schema, [settlement(job, outcome, backoff=lambda _: self.backoff, worker=worker) for job in jobs]
        )

    def complete(self, job: Job) -> bool:
        """Complete a job as an executor does, in its own transaction; False when the claim is lost."""
        return self.run(claims.complete(self.schema, job))

    def release(self, token: ClaimToken) -> int:
        """Give back what a claim took whose answer never came."""
        return self.run(claims.release(self.schema, worker_id=self.worker_id, token=token))

    def beat(self, lease: float = 3_600.0) -> bool:
        """Say that the worker lives; False when it was buried."""
        return self.run(workers.beat(self.schema, self.worker_id, lease=lease))

    def retire(self) -> bool:
        """Take the worker's row away."""
        return self.run(workers.retire(self.schema, self.worker_id))

    def bury(self) -> list[UUID]:
        """Remove workers that are silent for longer than their lease."""
        return [worker_id for worker_id, _ in self.run(upkeep.bury(self.schema))]

    def lost(self, size: int = 1_000) -> list[JobId]:
        """Find what lost workers hold."""
        return self.run(upkeep.lost(self.schema, size=size))

    def reap(self, ids: Sequence[JobId] | None = None) -> list[Reaped]:
        """Take back what lost workers hold."""
        return self.run(upkeep.reap(self.schema, self.lost() if ids is None else ids))

    def promote(self, size: int = 1_000) -> Promotion:
        """Make due jobs available."""
        return self.run(upkeep.promote(self.schema, size=size))

    def take_duty(self) -> bool:
        """Take the reaper's turn."""
        return self.run(upkeep.take_duty(self.schema, "reap", every=3_600.0))
