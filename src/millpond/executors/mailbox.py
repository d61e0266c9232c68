"""Calls from any thread that run on the event loop's, many for one wake-up."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class Mailbox:
    """Delivers in the order of posting. Callbacks must not raise. What is posted after the loop has closed is lost."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._letters: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._rung = False

    def post(self, callback: Callable[..., object], *args: Any) -> None:
        """Have `callback(*args)` called on the loop's thread soon."""
        self._letters.append((callback, args))
        if not self._rung:  # else a delivery is on its way that will find the letter: it clears the flag first
            self._rung = True
            with suppress(RuntimeError):  # the loop is closed: nobody is left to tell
                self._loop.call_soon_threadsafe(self._deliver)

    def forget(self) -> None:
        """In a forked child: the loop is the parent's, and must not be woken from here."""
        self._rung = True

    def _deliver(self) -> None:
        self._rung = False
        for _ in range(len(self._letters)):
            callback, args = self._letters.popleft()
            callback(*args)
