"""The doors that application code writes jobs through, inside its own transaction: one synchronous, one asynchronous.

Both hold options alone: no connection, no thread, nothing that a fork or a pickle could break. What they share is
everything but the last line, where one waits and the other awaits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Unpack

from millpond.errors import InvalidJob
from millpond.job import JobId, NewJob
from millpond.options import JobOptions, new_job
from millpond.payload import DEFAULT_MAX_ARGS_BYTES
from millpond.settings import DEFAULT_SCHEMA, checked_flag, checked_schema, checked_whole
from millpond.store.connections import AsyncConnection, SyncConnection, run, run_async
from millpond.store.insert import insert
from millpond.store.statement import Statement

HIGHEST_MAX_ARGS_BYTES: Final = 200 * 1_048_576
"""Bytes: jsonb holds a little more, in one value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClientOptions:
    schema: str = DEFAULT_SCHEMA
    """The schema that the migrations were run in."""
    max_args_bytes: int = DEFAULT_MAX_ARGS_BYTES
    """Longest args of one job, in bytes of JSON."""
    notify: bool = True
    """Whether to wake the workers at commit; off, they find the jobs by polling."""

    def __post_init__(self) -> None:
        checked_schema(self.schema)
        checked_whole("max_args_bytes", self.max_args_bytes, at_least=2, at_most=HIGHEST_MAX_ARGS_BYTES)
        checked_flag("notify", self.notify)

    def job(self, args: object, *, tenant: str, **options: Unpack[JobOptions]) -> NewJob:
        """Check and encode a job without sending it, for enqueue_many.

        Raises InvalidJob, InvalidArgs (which names the value by its path), ArgsTooLarge.
        """
        return new_job(args, tenant=tenant, options=options, max_args_bytes=self.max_args_bytes)

    def _insert(self, jobs: Iterable[NewJob]) -> Iterator[Statement[list[JobId]]]:
        return insert(self.schema, map(_checked, jobs), notify=self.notify)


class Client(_ClientOptions):
    """Enqueues through synchronous connections: psycopg, SQLAlchemy, Django."""

    __slots__ = ()

    def enqueue(self, conn: SyncConnection, args: object, *, tenant: str, **options: Unpack[JobOptions]) -> JobId:
        """Add one job to the transaction of `conn`: it is there, and workers hear of it, when that commits.

        Raises InvalidJob, InvalidArgs, ArgsTooLarge and UnsupportedConnection before anything is sent, so that the
        transaction goes on; SchemaMismatch when the schema is not migrated.
        """
        job = self.job(args, tenant=tenant, **options)
        return self.enqueue_many(conn, (job,))[0]

    def enqueue_many(self, conn: SyncConnection, jobs: Iterable[NewJob]) -> list[JobId]:
        """Add jobs, made by `job`, to the transaction of `conn`, and return their ids in the same order.

        Thousands go in one statement, more in several; an iterator is consumed as they are sent. When it raises, the
        statements before are in the transaction still: let the error roll it back. Raises as `enqueue` does.
        """
        return [job_id for statement in self._insert(jobs) for job_id in run(conn, statement)]


class AsyncClient(_ClientOptions):
    """Enqueues through asynchronous connections: psycopg, SQLAlchemy, asyncpg."""

    __slots__ = ()

    async def enqueue(
        self, conn: AsyncConnection, args: object, *, tenant: str, **options: Unpack[JobOptions]
    ) -> JobId:
        """Add one job to the transaction of `conn`: it is there, and workers hear of it, when that commits.

        Raises InvalidJob, InvalidArgs, ArgsTooLarge and UnsupportedConnection before anything is sent, so that the
        transaction goes on; SchemaMismatch when the schema is not migrated.
        """
        job = self.job(args, tenant=tenant, **options)
        return (await self.enqueue_many(conn, (job,)))[0]

    async def enqueue_many(self, conn: AsyncConnection, jobs: Iterable[NewJob]) -> list[JobId]:
        """Add jobs, made by `job`, to the transaction of `conn`, and return their ids in the same order.

        Thousands go in one statement, more in several; an iterator is consumed as they are sent. When it raises, the
        statements before are in the transaction still: let the error roll it back. Raises as `enqueue` does.
        """
        return [job_id for statement in self._insert(jobs) for job_id in await run_async(conn, statement)]


def _checked(job: NewJob) -> NewJob:
    if not isinstance(job, NewJob):
        raise InvalidJob("jobs", job, "must be what client.job(args, tenant=...) returns.")
    return job
