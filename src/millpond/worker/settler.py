"""Writes outcomes back, in batches: by size, or when the first of a batch has waited long enough."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

import msgspec
import psycopg

from millpond.clock import monotonic
from millpond.errors import AnswerLost, DatabaseUnreachable
from millpond.events import JobCompleted, JobEvent, JobFailed, JobsSettled
from millpond.execution import CompletedInPlace, Execution
from millpond.job import JobId, JobState
from millpond.outcome import Completed, Failed, Outcome, Released, Settlement, settlement
from millpond.retry import proportional_jitter
from millpond.settings import WorkerSettings
from millpond.store import claims
from millpond.store.link import Link
from millpond.store.sqlstates import Reaction, reaction, said
from millpond.worker.announcer import Announcer
from millpond.worker.failures import FailureLog
from millpond.worker.outbox import Outbox
from millpond.worker.patience import Patience
from millpond.worker.tally import Tally

logger = logging.getLogger(__name__)

_BATCHES_IN_MEMORY = 10
"""Outcomes that wait in memory, in full batches, before claiming stops: the bound during an outage."""

_AFTER_REFUSAL = 10.0
"""Seconds until the database is asked again to take an outcome that it has refused for a reason of its own."""

_SUBSTITUTE: Final[dict[str, object]] = {"type": "Unstorable", "message": "The error could not be stored."}

_LAST_TRIES = 5.0
"""Seconds that a finishing settler goes on trying while the database does not answer."""


class Settler:
    """Takes outcomes from the pool and moves the rows. Nothing it was given is forgotten while the worker lives."""

    def __init__(
        self,
        link: Link,
        settings: WorkerSettings,
        worker_id: UUID,
        *,
        on_written: Callable[[], None],
        announcer: Announcer,
        outbox: Outbox,
        tally: Tally,
    ) -> None:
        """`on_written` is called after each batch: there is room for more. `outbox` may hold what is left of before."""
        self._link = link
        self._settings = settings
        self._worker = str(worker_id)
        self._on_written = on_written
        self._announcer = announcer
        self._tally = tally
        self._patience = Patience("settler", announcer.announce)
        self._outbox = outbox
        self._news = asyncio.Event()
        self._writing = 0
        self._taken = 0
        self._given_up = False
        self._finishing_since: float | None = None
        self._trying_again: asyncio.TimerHandle | None = None
        self._failures = FailureLog()

    @property
    def taken(self) -> int:
        """Outcomes taken since the start: how much work the pool has finished."""
        return self._taken

    @property
    def waiting(self) -> int:
        """Outcomes not yet written."""
        return len(self._outbox.pending) + self._writing

    @property
    def full(self) -> bool:
        """Whether no more should be claimed until some are written."""
        return self.waiting >= _BATCHES_IN_MEMORY * self._settings.settle_size

    def add(self, execution: Execution, outcome: Outcome) -> None:
        """Take the outcome of an attempt. Never blocks: it is the end of the pool's callback."""
        self._taken += 1
        if isinstance(outcome, Released) and outcome.started:
            self._tally.cut_short += 1
        if self._given_up and not _never_started(outcome):
            return
        if execution.completed_in_place or _tells_of_completion(outcome):
            self._outbox.doubtful.add(execution.job.id)
            self._outbox.completed_in_place[execution.job.id] = _completed(execution)
        settled = settlement(execution.job, outcome, backoff=self._backoff, worker=self._worker)
        if isinstance(outcome, Failed):
            self._failures.tell(execution.job, outcome.error, settled)
        if self._announcer.jobs_are_observed and (event := _event_of(execution, outcome, settled)) is not None:
            self._outbox.told[execution.job.id] = event
        self._outbox.pending.append(settled)
        if len(self._outbox.pending) in (1, self._settings.settle_size):
            self._news.set()

    def give_up(self) -> None:
        """Write no more: the lease is over. What has ended waits for the next one; what still runs is dropped."""
        self._given_up = True
        self._link.hurry(0)
        self._news.set()

    def finish(self) -> None:
        """Write what is left, then end."""
        self._finishing_since = monotonic()
        self._link.hurry(_LAST_TRIES)
        if self._trying_again is not None:
            self._trying_again.cancel()
            self._try_again()
        self._news.set()

    def _try_again(self) -> None:
        """Give what was refused another chance."""
        self._trying_again = None
        self._outbox.pending += self._outbox.refused
        self._outbox.refused.clear()
        self._news.set()

    async def run(self) -> None:
        """Write batches as they come due."""
        while await self._due():
            batch = self._outbox.pending[: self._settings.settle_size]
            del self._outbox.pending[: len(batch)]
            self._writing = len(batch)
            await self._write(batch)
            self._writing = 0
            self._on_written()

    async def _due(self) -> bool:
        """Wait until a batch should be written; False when there will be none."""
        while not self._outbox.pending:
            if self._finishing_since is not None:
                return False
            self._news.clear()
            await self._news.wait()
        if len(self._outbox.pending) < self._settings.settle_size and self._finishing_since is None:
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.settle_interval):
                    await self._news.wait()
        return not self._given_up

    async def _write(self, batch: Sequence[Settlement]) -> None:
        """Write a batch, again and again if need be."""
        while not self._given_up:
            started = monotonic()
            try:
                unmoved = await self._link.run(claims.settle(self._settings.schema, batch))
            except (DatabaseUnreachable, psycopg.Error) as error:
                if isinstance(error, psycopg.Error) and reaction(error) is Reaction.ISOLATE:
                    await self._isolate(batch, error)
                    return
                if isinstance(error, AnswerLost):
                    self._outbox.doubtful.update(outcome.id for outcome in batch)
                if self._given_up or self._out_of_tries():
                    self._given_up = True
                else:
                    await self._patience.failed(error)
            else:
                self._patience.succeeded()
                self._announce(batch, unmoved, monotonic() - started)
                return
        self._outbox.pending[:0] = batch

    async def _isolate(self, batch: Sequence[Settlement], error: psycopg.Error) -> None:
        """One outcome of the batch cannot be stored: find it by halving, so that the others are."""
        if len(batch) > 1:
            middle = len(batch) // 2
            await self._write(batch[:middle])
            await self._write(batch[middle:])
        elif batch[0].error not in (None, _SUBSTITUTE):
            logger.error("The error of job %d could not be stored: %s", batch[0].id, said(error))
            await self._write([msgspec.structs.replace(batch[0], error=_SUBSTITUTE)])
        else:
            logger.error("The outcome of job %d is refused; it is tried again later: %s", batch[0].id, said(error))
            self._outbox.refused.append(batch[0])
            if self._trying_again is None and self._finishing_since is None:
                self._trying_again = asyncio.get_running_loop().call_later(_AFTER_REFUSAL, self._try_again)

    def _announce(self, batch: Sequence[Settlement], unmoved: Sequence[JobId], seconds: float) -> None:
        doubtful = self._outbox.doubtful
        stale = [job_id for job_id in unmoved if job_id not in doubtful]
        in_place = set(unmoved).intersection(self._outbox.completed_in_place)
        if doubtful:
            doubtful.difference_update(outcome.id for outcome in batch)
        if stale:
            logger.warning("%d outcomes came too late, their claims were lost: jobs %s", len(stale), stale[:10])
        lost = set(stale)
        states = Counter(
            JobState.COMPLETED.value if outcome.id in in_place else outcome.state
            for outcome in batch
            if outcome.id not in lost
        )
        self._tally.settled += states
        self._tally.stale += len(stale)
        self._announcer.announce(JobsSettled(states, len(stale), seconds))
        for outcome in batch:
            completed = self._outbox.completed_in_place.pop(outcome.id, None)
            event = self._outbox.told.pop(outcome.id, None)
            if outcome.id in in_place:
                event = completed
            if event is not None and outcome.id not in lost:
                self._announcer.announce_job(event)

    def _out_of_tries(self) -> bool:
        return self._finishing_since is not None and monotonic() - self._finishing_since > _LAST_TRIES

    def _backoff(self, attempt: int) -> float:
        return proportional_jitter(attempt, self._settings.base_backoff, self._settings.max_backoff)


def _completed(execution: Execution) -> JobCompleted:
    return JobCompleted(execution.job, 0.0 if execution.started_at is None else monotonic() - execution.started_at)


def _never_started(outcome: Outcome) -> bool:
    return isinstance(outcome, Released) and not outcome.started


def _tells_of_completion(outcome: Outcome) -> bool:
    """Whether this came from a child process whose executor wrote the completion itself."""
    return isinstance(outcome, Completed) and isinstance(outcome.result, CompletedInPlace)


def _event_of(execution: Execution, outcome: Outcome, settled: Settlement) -> JobEvent | None:
    """What its observer hears of a job: a completion, or a failure that was the last."""
    match outcome:
        case Completed():
            return _completed(execution)
        case Failed(error) if settled.state == JobState.DISCARDED:
            return JobFailed(execution.job, error)
        case _:
            return None
