"""Tells the log of attempts that failed: each one, as long as they are few; how many, when they are not.

The log says what was raised, and where. The message stays in the row's error history: it may hold what is nobody's
business but the tenant's.
"""

from __future__ import annotations

import logging
import traceback
from typing import Final

from millpond.clock import monotonic
from millpond.job import Job, JobState
from millpond.outcome import Settlement

logger = logging.getLogger(__name__)

_MOST: Final = 10
"""Lines in one second. A tenant whose every job fails must not fill the disk."""


class FailureLog:
    """One line for each failed attempt, at most so many in a second. The full story is in the row's error history."""

    def __init__(self) -> None:
        self._since = monotonic()
        self._lines = 0
        self._unsaid = 0

    def tell(self, job: Job, error: BaseException, settled: Settlement) -> None:
        """Say which attempt failed, how, and what comes next."""
        now = monotonic()
        if now - self._since >= 1.0:
            if self._unsaid:
                logger.warning(
                    "%d more attempts failed; each has its entry in the jobs' error histories.", self._unsaid
                )
            self._since, self._lines, self._unsaid = now, 0, 0
        if self._lines >= _MOST:
            self._unsaid += 1
            return
        self._lines += 1
        discarded = settled.state == JobState.DISCARDED
        logger.log(
            logging.ERROR if discarded else logging.WARNING,
            "Job %d (%s) of tenant %r failed on attempt %d of %d, %s: %s%s",
            job.id,
            job.executor,
            job.tenant,
            job.attempt,
            job.max_attempts,
            "and is discarded" if discarded else f"and runs again in {settled.delay:.1f} s",
            type(error).__qualname__,
            _where(error),
        )


def _where(error: BaseException) -> str:
    """The innermost place of the user's that the error passed; none for one that comes from a child process."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if not str(frame.f_globals.get("__name__")).startswith("millpond."):
            place = f" at {frame.f_code.co_filename}:{line}"
    return place
