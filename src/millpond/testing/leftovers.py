"""What a test must not leave behind: tasks on its loop, threads in the process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Final

_GRACE: Final = 2.0
"""Seconds for what has been told to end."""


class LeftRunning(AssertionError):
    """A test that left tasks or threads running."""


@contextlib.asynccontextmanager
async def no_tasks_left() -> AsyncIterator[None]:
    """Raises LeftRunning when the running loop has more tasks after the body than before."""
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    if left:
        _, left = await asyncio.wait(left, timeout=_GRACE)
    if left:
        raise LeftRunning("Tasks were left running: " + "; ".join(sorted(repr(task) for task in left)))


@contextlib.contextmanager
def no_threads_left() -> Iterator[None]:
    """Raises LeftRunning when the body left threads: those that keep a process alive, and any of ours."""
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before and _counts(thread)]
    for thread in left:
        thread.join(_GRACE)
    names = sorted(thread.name for thread in left if thread.is_alive())
    if names:
        raise LeftRunning(f"Threads were left running: {', '.join(names)}")


def _counts(thread: threading.Thread) -> bool:
    return not thread.daemon or thread.name.startswith("millpond")
