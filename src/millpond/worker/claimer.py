"""Takes jobs from the store, no more than the pool has room for: the only source of what runs here."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import replace

import psycopg

from millpond.clock import monotonic
from millpond.errors import DatabaseUnreachable, SubmitError
from millpond.events import JobsClaimed
from millpond.execution import CompleteIn, Execution
from millpond.job import ClaimToken, Job
from millpond.outcome import Outcome, Released
from millpond.registry import Executor
from millpond.settings import WorkerSettings
from millpond.store import claims
from millpond.store.claims import Turn
from millpond.store.link import Link
from millpond.store.sqlstates import said
from millpond.tenancy.pool import TenantPool
from millpond.tenancy.task import Task
from millpond.worker.announcer import Announcer
from millpond.worker.appetite import Appetite, Helping
from millpond.worker.bell import Bell
from millpond.worker.patience import Patience
from millpond.worker.registration import Registration
from millpond.worker.settler import Settler

logger = logging.getLogger(__name__)

_BREATH = 0.01
"""Seconds between two looks for newcomers while enough is waiting: a flood of wake-ups is one wake-up."""


class Claimer:
    """Keeps the pool busy from the store, tenants in turn, and passes what becomes of each job to the settler."""

    def __init__(
        self,
        link: Link,
        settings: WorkerSettings,
        registration: Registration,
        executors: Mapping[str, Executor],
        *,
        pool: TenantPool,
        settler: Settler,
        bell: Bell,
        complete_in: CompleteIn,
        announcer: Announcer,
    ) -> None:
        """`bell` is rung by whoever knows of new jobs, and by the claimer itself when work is done."""
        self._link = link
        self._settings = settings
        self._registration = registration
        self._executors = executors
        self._pool = pool
        self._settler = settler
        self._bell = bell
        self._complete_in = complete_in
        self._announcer = announcer
        self._patience = Patience("claimer", announcer.announce)
        self._held: set[Execution] = set()
        self._appetite = Appetite(
            worker_count=settings.pool.worker_count,
            tenant_queue_size=settings.pool.tenant_queue_size,
            claim_size=settings.claim_size,
            now=monotonic(),
        )
        self._keys = sorted(executors)
        self._queues = deque(settings.queues)
        self._cursors = dict.fromkeys(settings.queues, "")
        self._unanswered: list[ClaimToken] = []
        self._hungry = False

    async def run(self, until: asyncio.Event) -> None:
        """Claim until told to stop (set the event and ring the bell), or until all is done if the settings say so."""
        try:
            while not until.is_set() and not self._registration.exhausted:
                try:
                    more = await self._round()
                    if not more and self._settings.exit_when_done and await self._done():
                        return
                    self._patience.succeeded()
                except (DatabaseUnreachable, psycopg.Error) as error:
                    await self._patience.failed(error)
                else:
                    if not more:
                        await self._bell.wait(self._settings.poll_interval * random.uniform(0.9, 1.1))
        finally:
            await self._release_unanswered_once()

    def finished(self, task: Task, outcome: Outcome) -> None:
        """The pool's callback: an attempt has ended, or will never start."""
        assert isinstance(task.run, Execution)
        self._held.discard(task.run)
        self._settler.add(task.run, outcome)
        self.work_was_done()

    def running_since(self) -> Iterable[tuple[Job, float]]:
        """The jobs that run, and since when; only when single jobs are observed."""
        return [(execution.job, execution.started_at) for execution in self._held if execution.started_at is not None]

    def work_was_done(self) -> None:
        """There may be room again: look, if the last look was cut short by want of it."""
        if self._hungry and self._pool.queued <= self._appetite.reserve // 2:
            self._bell.ring()

    async def _round(self) -> bool:
        """Claim once from each queue; whether to go on at once."""
        await self._release_unanswered()
        helping = self._helping()
        if helping is None:
            self._hungry = True
            return False
        self._hungry = 0 in helping.rooms.values()
        self._queues.rotate(-1)  # another one begins each time, and each gets its share
        more = False
        for index, queue in enumerate(self._queues):
            turn = await self._claim(queue, helping.share(len(self._queues) - index))
            helping = helping.without(Counter(job.tenant for job in turn.jobs))
            more |= turn.more
            if not helping.size:
                break
        self._hungry |= more
        return more

    def _helping(self) -> Helping | None:
        if self._settler.full:
            return None
        self._appetite.measure(self._settler.taken, monotonic())
        return self._appetite.helping(queued=self._pool.queued, running=self._pool.running, room=self._pool.room())

    async def _claim(self, queue: str, helping: Helping) -> Turn:
        token = self._registration.next_token()
        statement = claims.claim(
            self._settings.schema,
            queue=queue,
            size=helping.size,
            cursor=self._cursors[queue],
            rooms=helping.rooms,
            default_room=helping.default_room,
            executors=self._keys,
            worker_id=self._registration.worker_id,
            token=token,
        )
        started = monotonic()
        try:
            turn = await self._link.run(statement)
        except BaseException:
            self._unanswered.append(token)  # it may have been carried out, whatever became of the answer
            raise
        came_round = turn.cursor <= self._cursors[queue]
        self._cursors[queue] = turn.cursor
        for job in turn.jobs:
            self._submit(job)
        if turn.jobs:
            self._announcer.announce(JobsClaimed(queue, len(turn.jobs), monotonic() - started))
        # Tenants whose jobs all lack an executor here fill the ring without giving any: once round is enough.
        return turn if turn.jobs or not came_round else replace(turn, more=False)

    def _submit(self, job: Job) -> None:
        executor = self._executors[job.executor]
        execution = Execution(job, executor, self._complete_in)
        try:
            self._pool.submit(
                Task(
                    tenant=job.tenant,
                    run=execution,
                    complete=self.finished,
                    isolation=executor.isolation,
                    timeout=job.timeout if job.timeout is not None else executor.timeout,
                    key=job.executor,
                    id=job.id,
                )
            )
        except SubmitError as error:
            self._settler.add(execution, Released(str(error)))
        else:
            if self._announcer.jobs_are_observed:
                self._held.add(execution)

    async def _release_unanswered(self) -> None:
        """Give back what a claim may have taken whose answer was lost. None of it was started."""
        while self._unanswered:
            token = self._unanswered[-1]
            released = await self._link.run(
                claims.release(self._settings.schema, worker_id=self._registration.worker_id, token=token)
            )
            self._unanswered.pop()
            if released:
                logger.warning("%d jobs of a claim whose answer was lost are handed back.", released)

    async def _release_unanswered_once(self) -> None:
        try:
            await self._release_unanswered()
        except (DatabaseUnreachable, psycopg.Error) as error:
            logger.warning("A claim whose answer was lost is left to the reaper: %s", said(error))

    async def _done(self) -> bool:
        """Whether nothing is left to do, here or anywhere."""
        if self._pool.queued or self._pool.running or self._settler.waiting:
            return False
        return not await self._link.run(
            claims.unfinished(self._settings.schema, queues=self._settings.queues, executors=self._keys)
        )
