"""Moving many rows at once, when the database may refuse it because of one: that one is found, and left as it is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import psycopg

from millpond.job import JobId
from millpond.store.link import Link
from millpond.store.sqlstates import Reaction, reaction, said
from millpond.store.statement import Statement

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Refusals:
    """The jobs that could not be moved lately: a CHECK, an index or a trigger of somebody's is against it."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.ids: set[JobId] = set()
        """To be left out until `forget`."""
        self._before: set[JobId] = set()

    def forget(self) -> None:
        """Let each be tried again. Those that are refused again are not logged again."""
        self._before, self.ids = self.ids, set()

    async def run_apart(self, statement: Callable[[Sequence[JobId]], Statement[T]], ids: Sequence[JobId]) -> list[T]:
        """Run a statement for these jobs; for halves of them when it is refused, so that all but the bad ones move."""
        try:
            return [await self._link.run(statement(ids))]
        except psycopg.Error as error:
            if reaction(error) is not Reaction.ISOLATE:
                raise
            if len(ids) == 1:
                self._add(ids[0], error)
                return []
        middle = len(ids) // 2
        return [*await self.run_apart(statement, ids[:middle]), *await self.run_apart(statement, ids[middle:])]

    def _add(self, job_id: JobId, error: psycopg.Error) -> None:
        self.ids.add(job_id)
        if job_id not in self._before:
            logger.error("Job %d cannot be moved, and is left as it is: %s", job_id, said(error))
