"""Going on when the database does not answer: wait a little longer each time, say so once per step."""

from __future__ import annotations

import asyncio
import logging

from millpond.events import DatabaseLost, Observe
from millpond.retry import proportional_jitter
from millpond.store.sqlstates import said

logger = logging.getLogger(__name__)

_FIRST_WAIT = 0.1
_LONGEST_WAIT = 3.0
"""Seconds. Short, so that work goes on within five seconds after the database is back."""


class Patience:
    """Counts the failures of one loop in a row, and waits accordingly."""

    def __init__(self, loop: str, observe: Observe, *, longest_wait: float = _LONGEST_WAIT) -> None:
        """`loop` is its name, `longest_wait` in seconds. `observe` is told of each failure."""
        self._loop = loop
        self._observe = observe
        self._longest_wait = longest_wait
        self._failures = 0

    @property
    def failures(self) -> int:
        """How often in a row it failed, up to now."""
        return self._failures

    def succeeded(self) -> None:
        """Forget the failures so far."""
        if self._failures:
            logger.info("The %s has the database back, after %d failures.", self._loop, self._failures)
            self._failures = 0

    async def failed(self, error: Exception) -> None:
        """Say what happened, and wait before the next try."""
        self._failures += 1
        delay = proportional_jitter(self._failures, _FIRST_WAIT, self._longest_wait)
        logger.warning("The %s failed and tries again in %.1f s: %s", self._loop, delay, said(error))
        self._observe(DatabaseLost(self._loop, said(error), delay))
        await asyncio.sleep(delay)
