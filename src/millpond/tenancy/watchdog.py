"""Notices when the event loop stands still, measures for how long, and names what it stands still in."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final

from millpond.clock import monotonic
from millpond.tenancy.logs import logger_of
from millpond.tenancy.runners import Runner

logger = logger_of(__name__)

_FRAMES: Final = 12
"""Frames of the loop's stack that are logged: the innermost."""


class Watchdog:
    """A thread that asks the loop, now and then, whether it comes round.

    A loop that stands still for one and a half times `blocked_after` is certainly noticed while it does.
    """

    def __init__(self, blocked_after: float, lagged: Callable[[float], None]) -> None:
        """`blocked_after` is in seconds. `lagged` is called on the loop's thread with each measurement, in seconds."""
        self._loop = asyncio.get_running_loop()
        self._loops_thread = threading.get_ident()
        self._blocked_after = blocked_after
        self._lagged = lagged
        self._asked: float | None = None
        self._measured = 0.0
        self._news: SimpleQueue[bool] = SimpleQueue()
        threading.Thread(target=self._watch, name="millpond-watchdog", daemon=True).start()

    @property
    def lag(self) -> float:
        """Seconds the loop took to come round when it was last asked; or has taken by now."""
        asked = self._asked
        return self._measured if asked is None else max(self._measured, monotonic() - asked)

    @property
    def blocked(self) -> bool:
        """Whether the loop stands still now."""
        asked = self._asked
        return asked is not None and monotonic() - asked >= self._blocked_after

    def stop(self) -> None:
        """Watch no more. From any thread."""
        self._news.put(False)

    def _watch(self) -> None:
        while self._told_within(self._blocked_after / 2) is None:
            self._asked = asked = monotonic()
            try:
                self._loop.call_soon_threadsafe(self._answer, asked)
            except RuntimeError:  # the loop is closed
                return
            told = self._told_within(self._blocked_after)
            if told is None:
                logger.warning("%s", self._found(monotonic() - asked))
                told = self._news.get()
                logger.warning("The event loop goes on, after %.3g s.", self._measured)
            if not told:
                return

    def _told_within(self, seconds: float) -> bool | None:
        """True: the loop has answered. False: watch no more. None: neither, in all that time."""
        with suppress(Empty):
            return self._news.get(timeout=seconds)
        return None

    def _answer(self, asked: float) -> None:
        self._measured = monotonic() - asked
        self._asked = None
        self._news.put(True)
        self._lagged(self._measured)

    def _found(self, seconds: float) -> str:
        """What the loop stands still in. Tasks that compute or block belong in threads or processes."""
        current = asyncio.current_task(self._loop)
        culprit: object = current.attempt if isinstance(current, Runner) and current.attempt else current
        frame = sys._current_frames().get(self._loops_thread)
        stack = "".join(traceback.format_stack(frame)[-_FRAMES:]) if frame is not None else ""
        return f"The event loop has stood still for {seconds:.3g} s, in {culprit or 'a callback'}:\n{stack}"
