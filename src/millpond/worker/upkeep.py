"""Keeps the table honest: promotes what is due, takes back what dead workers held, names what nobody here can run.

There is no leader. Each worker does all of it; SKIP LOCKED makes an overlap harmless, and a duty's row in the database
says when its next turn is, so that many workers do the reaping once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import psycopg

from millpond.clock import monotonic
from millpond.errors import DatabaseUnreachable
from millpond.events import JobsPromoted, JobsReaped, JobsUnclaimable, Observe
from millpond.job import JobId, JobState
from millpond.settings import WorkerSettings
from millpond.store import upkeep
from millpond.store.link import Link
from millpond.store.sqlstates import Reaction, reaction
from millpond.store.upkeep import Reaped
from millpond.worker.bell import Bell
from millpond.worker.patience import Patience
from millpond.worker.refusals import Refusals

logger = logging.getLogger(__name__)

_BATCH = 1_000
"""Rows that one statement of upkeep moves at most: its locks are short."""

_BREATH = 0.02
"""Seconds between two promotions: a flood of wake-ups is one wake-up, and a due job starts within this time."""

_AFTERMATH = 10.0
"""Seconds, at most, that others have after an outage to come back and write what they finished, before it is taken back
from them. Each of them may be waiting for its next try, for as long as its patience is (`patience.py`)."""

_LOOK_FOR_UNCLAIMABLE_EVERY = 10.0
"""Seconds."""


class Upkeep:
    """One service for all that is due now and then."""

    def __init__(
        self,
        link: Link,
        settings: WorkerSettings,
        executors: list[str],
        *,
        bell: Bell,
        observe: Observe,
        after_outage: bool = False,
    ) -> None:
        """`bell` is rung when a job may have been scheduled: the next due moment is asked for anew. `after_outage`:
        others may be coming back just now, as this worker is."""
        self._link = link
        self._settings = settings
        self._executors = executors
        self._bell = bell
        self._observe = observe
        self._patience = Patience("upkeep", observe)
        self._reap_every = max(1.0, settings.stale_timeout / 2)
        self._aftermath = min(_AFTERMATH, 3 * settings.stale_timeout)
        self._reap_at = monotonic() + (self._aftermath if after_outage else 0.0)
        self._reaping = False
        self._answered_at = monotonic()
        self._look_at = monotonic()
        self._unclaimable: dict[str, dict[str, int]] = {}
        self._refusals = Refusals(link)

    async def run(self) -> None:
        """Do what is due; sleep until the next moment that something is."""
        try:
            while True:
                try:
                    wait = await self._round()
                    self._patience.succeeded()
                    self._answered_at = monotonic()
                except (DatabaseUnreachable, psycopg.Error) as error:
                    self._wait_for_others()
                    await self._patience.failed(error)
                else:
                    await asyncio.sleep(_BREATH)
                    await self._bell.wait(max(0.0, wait - _BREATH))
        finally:
            await self._link.close()

    async def _round(self) -> float:
        """One round of every duty; the seconds until the next."""
        wait = await self._promote()
        now = monotonic()
        if now >= self._reap_at:
            self._refusals.forget()
            await self._reap()
            self._reap_at = now + self._reap_every
        if now >= self._look_at:
            for queue in self._settings.queues:
                await self._look_for_unclaimable(queue)
            self._look_at = now + _LOOK_FOR_UNCLAIMABLE_EVERY
        return wait

    def _wait_for_others(self) -> None:
        """Take nothing back soon after an outage so long that it may have silenced everybody: others come back, too."""
        now = monotonic()
        if now - self._answered_at > self._settings.stale_timeout / 2:
            self._reap_at = max(self._reap_at, now + self._aftermath)

    async def _promote(self) -> float:
        """Make due jobs available; the seconds until the next is due, at most poll_interval."""
        schema = self._settings.schema
        while True:
            try:
                promotion = await self._link.run(upkeep.promote(schema, size=_BATCH, refused=self._refusals.ids))
            except psycopg.Error as error:
                if reaction(error) is not Reaction.ISOLATE:
                    raise
                await self._promote_apart()
                continue
            self._announce_promoted(promotion.promoted)
            if promotion.promoted < _BATCH:
                break
        return min(self._settings.poll_interval, promotion.next_due or self._settings.poll_interval)

    async def _promote_apart(self) -> None:
        """One of the due jobs cannot be promoted; all others are."""
        schema = self._settings.schema
        due = await self._link.run(upkeep.due(schema, size=_BATCH, refused=self._refusals.ids))
        parts = await self._refusals.run_apart(lambda ids: upkeep.promote(schema, size=_BATCH, ids=ids), due)
        self._announce_promoted(sum(part.promoted for part in parts))

    async def _reap(self) -> None:
        """Bury silent workers and take back what they held, when it is this worker's turn."""
        schema = self._settings.schema
        async with self._link.transaction() as link:
            # An earlier turn may have been cut short: it is taken in the database, and not done.
            self._reaping |= await link.run(upkeep.take_duty(schema, "reap", every=self._reap_every))
            if not self._reaping:
                return
            for worker_id, name in await link.run(upkeep.bury(schema)):
                logger.warning(
                    "Worker %s (%s) was silent for longer than its lease; its jobs are taken back.", worker_id, name
                )
        left: set[JobId] = set()  # for the next turn: refused, or locked by somebody who settles them just now
        while lost := await self._link.run(upkeep.lost(schema, size=_BATCH, refused=left)):
            batches = await self._refusals.run_apart(lambda ids: upkeep.reap(schema, ids), lost)
            reaped = [job for batch in batches for job in batch]
            self._announce(reaped)
            left.update(set(lost).difference(job.id for job in reaped))
        self._reaping = False

    def _announce_promoted(self, promoted: int) -> None:
        if promoted:
            self._observe(JobsPromoted(promoted))

    def _announce(self, reaped: list[Reaped]) -> None:
        if not reaped:
            return
        states = Counter(job.state for job in reaped)
        available, discarded = states[JobState.AVAILABLE], states[JobState.DISCARDED]
        logger.warning(
            "Took back %d jobs of lost workers: %d run again, %d are discarded after their last attempt.",
            len(reaped),
            available,
            discarded,
        )
        self._observe(JobsReaped(available=available, discarded=discarded))

    async def _look_for_unclaimable(self, queue: str) -> None:
        """Name the executor keys that wait in this queue and are not registered here: they need another worker."""
        seen: Counter[str] = Counter()
        cursor: str | None = ""
        while cursor is not None:
            found = await self._link.run(
                upkeep.unclaimable(self._settings.schema, queue=queue, executors=self._executors, cursor=cursor)
            )
            seen.update(found.seen)
            cursor = found.cursor
        before = self._unclaimable.get(queue, {})
        if seen or before:
            self._observe(JobsUnclaimable(queue, dict(seen)))
        if new := sorted(seen.keys() - before.keys()):
            logger.warning(
                "Jobs wait in queue %r for executors that this worker does not have: %s.",
                queue,
                ", ".join(map(repr, new)),
            )
        self._unclaimable[queue] = dict(seen)
