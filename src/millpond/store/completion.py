"""Completing a job on a connection of the executor's own: what it wrote there and its completion commit together."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, overload

from millpond.errors import ClaimLost
from millpond.job import Job
from millpond.store import claims
from millpond.store.connections import AsyncConnection, SyncConnection, is_async, run, run_async


class Completer:
    """Completes jobs of one schema, through any connection the clients take."""

    def __init__(self, schema: str) -> None:
        self._schema = schema

    @overload
    def __call__(self, conn: SyncConnection, job: Job) -> None: ...
    @overload
    def __call__(self, conn: AsyncConnection, job: Job) -> Coroutine[Any, Any, None]: ...
    def __call__(self, conn: Any, job: Job) -> Coroutine[Any, Any, None] | None:
        """Complete the job in the open transaction. Raises ClaimLost, UnsupportedConnection."""
        if is_async(conn):
            return self._complete_async(conn, job)
        if not run(conn, claims.complete(self._schema, job)):
            raise ClaimLost(job.id)
        return None

    async def _complete_async(self, conn: AsyncConnection, job: Job) -> None:
        if not await run_async(conn, claims.complete(self._schema, job)):
            raise ClaimLost(job.id)
