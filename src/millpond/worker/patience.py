"""Going on when the database does not answer: wait a little longer each time, say so once per step."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import psycopg

from millpond.errors import DatabaseUnreachable
from millpond.events import DatabaseLost, Observe
from millpond.retry import proportional_jitter

T = TypeVar("T")

logger = logging.getLogger(__name__)

_FIRST_WAIT = 0.1
_LONGEST_WAIT = 3.0
"""Seconds. Short, so that work goes on within five seconds after the database is back."""


class Patience:
    """Counts the failures of one loop in a row, and waits accordingly."""

    def __init__(self, loop: str, observe: Observe) -> None:
        self._loop = loop
        self._observe = observe
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
        delay = proportional_jitter(self._failures, _FIRST_WAIT, _LONGEST_WAIT)
        logger.warning("The %s failed and tries again in %.1f s: %s", self._loop, delay, str(error).strip())
        self._observe(DatabaseLost(self._loop, str(error).strip(), delay))
        await asyncio.sleep(delay)

    async def insist(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until the database answers. Errors that are not the database's pass."""
        while True:
            try:
                result = await attempt()
            except (DatabaseUnreachable, psycopg.Error) as error:
                await self.failed(error)
            else:
                self.succeeded()
                return result
