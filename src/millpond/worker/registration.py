"""The worker's row: announced before anything is claimed, taken away after everything is settled."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Iterable
from uuid import UUID, uuid4

import psycopg

from millpond.errors import DatabaseUnreachable
from millpond.job import ClaimToken
from millpond.settings import WorkerSettings
from millpond.store import claims, workers
from millpond.store.link import Link
from millpond.store.sqlstates import said

logger = logging.getLogger(__name__)


class Registration:
    """One boot of a worker: an id that no other boot has, and the tokens it may stamp on what it claims."""

    def __init__(self, worker_id: UUID, number: int) -> None:
        self.worker_id = worker_id
        self.number = number
        self.over = False
        """Whether its lease is over while it may still hold jobs: the row then stays until others find it silent."""
        self._claims = 0

    @property
    def exhausted(self) -> bool:
        """Whether every token of this number is used up: time to register anew."""
        return self._claims >= claims.MAX_CLAIMS

    def next_token(self) -> ClaimToken:
        """A token that was never used before."""
        self._claims += 1
        return claims.claim_token(self.number, self._claims)


def worker_name() -> str:
    """Where this worker runs, for people: host and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


@contextlib.asynccontextmanager
async def registered(link: Link, settings: WorkerSettings, executors: Iterable[str]) -> AsyncIterator[Registration]:
    """Announce a worker for as long as the body runs."""
    worker_id = uuid4()
    number = await link.run(
        workers.register(
            settings.schema,
            worker_id,
            lease=settings.stale_timeout,
            name=worker_name(),
            queues=settings.queues,
            executors=sorted(executors),
        )
    )
    registration = Registration(worker_id, number)
    try:
        yield registration
    finally:
        if not registration.over:
            await _retire(link, settings.schema, worker_id)


async def _retire(link: Link, schema: str, worker_id: UUID) -> None:
    """Take the row away, so that nobody has to wait for its lease to run out."""
    await link.close()  # it was idle for long, and may have broken without a word
    try:
        await link.run(workers.retire(schema, worker_id))
    except (DatabaseUnreachable, psycopg.Error) as error:
        logger.warning("Worker %s could not take its row away; its lease will run out: %s", worker_id, said(error))
