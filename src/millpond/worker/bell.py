"""What wakes the worker's loops: a hint without content, that is never lost between a look and a sleep."""

from __future__ import annotations

import asyncio
import contextlib


class Bell:
    """Rung from the event loop's thread. A ring while nobody waits is kept for the next wait."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait for a ring, at most so many seconds, and take it; whether there was one. Look only after this."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        rung = self._rung.is_set()
        self._rung.clear()
        return rung
