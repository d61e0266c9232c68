"""Tells the observer, now and then, of jobs that are still running. Nothing of it is written to the database."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from millpond.clock import monotonic
from millpond.events import JobHeartbeat
from millpond.job import Job
from millpond.worker.announcer import Announcer


class Heartbeats:
    """A service for observers of long jobs."""

    def __init__(
        self, announcer: Announcer, running_since: Callable[[], Iterable[tuple[Job, float]]], *, every: float
    ) -> None:
        """`running_since` gives the jobs that run, and when they began; `every`: seconds."""
        self._announcer = announcer
        self._running_since = running_since
        self._every = every

    async def run(self) -> None:
        """Tell of every job that has run for longer than the interval."""
        while True:
            await asyncio.sleep(self._every)
            now = monotonic()
            for job, started_at in self._running_since():
                if now - started_at >= self._every:
                    self._announcer.announce_job(JobHeartbeat(job, now - started_at))
