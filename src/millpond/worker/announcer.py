"""Carries events to the observer, in a thread of its own: a slow observer delays nothing, a hanging one misses some."""

from __future__ import annotations

import logging
import queue
import threading
from typing import Final

from millpond.events import Event, JobEvent, Observe, ObserveJobs

logger = logging.getLogger(__name__)

_MOST_WAITING: Final = 10_000
"""Events that wait for a slow observer; later ones are dropped, and counted in the log."""

_GOODBYE: Final = 1.0
"""Seconds that the observer has for what waits when the worker has stopped."""


class Announcer:
    """Takes events from the worker's loop without ever blocking it. As a context manager, it runs for the body."""

    def __init__(self, observe: Observe | None, observe_jobs: ObserveJobs | None) -> None:
        self._observe = observe
        self._observe_jobs = observe_jobs
        self._events: queue.SimpleQueue[Event | JobEvent | None] = queue.SimpleQueue()
        self._dropped = 0
        self._thread = threading.Thread(target=self._carry, name="millpond-observer", daemon=True)

    @property
    def jobs_are_observed(self) -> bool:
        """Whether anybody wants to hear of single jobs; if not, nothing should be made for them."""
        return self._observe_jobs is not None

    def announce(self, event: Event) -> None:
        """Tell of a fact."""
        if self._observe is not None:
            self._put(event)

    def announce_job(self, event: JobEvent) -> None:
        """Tell of a single job."""
        if self._observe_jobs is not None:
            self._put(event)

    def __enter__(self) -> Announcer:
        if self._observe is not None or self._observe_jobs is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._dropped:
            logger.warning("%d events were dropped: the observer was too slow.", self._dropped)
        if self._thread.ident is not None:
            self._events.put(None)
            self._thread.join(_GOODBYE)

    def _put(self, event: Event | JobEvent) -> None:
        if self._events.qsize() < _MOST_WAITING:
            self._events.put(event)
        else:
            self._dropped += 1

    def _carry(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                if isinstance(event, JobEvent):
                    assert self._observe_jobs is not None
                    self._observe_jobs(event)
                else:
                    assert self._observe is not None
                    self._observe(event)
            except BaseException:
                logger.exception("The observer failed on %s; nothing else changes.", type(event).__name__)
