"""What the child processes of the pool's tests run: importable, as it must be."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from millpond.tenancy.task import TaskContext


def pid(_: TaskContext) -> int:
    return os.getpid()


def context_of(context: TaskContext) -> tuple[str, str, object, int, bool, float | None]:
    task = context.task
    return task.tenant, task.key, task.id, context.attempt, context.cancelled, context.deadline


async def from_a_coroutine(_: TaskContext) -> str:
    await asyncio.sleep(0)
    return "awaited"


def killed(_: TaskContext) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def crashes(_: TaskContext) -> None:
    ctypes.string_at(0)


def exits(_: TaskContext) -> None:
    os._exit(3)


def leaves(_: TaskContext) -> None:
    sys.exit(4)


def raises(_: TaskContext) -> None:
    raise KeyError("lost")


class TwoArguments(Exception):
    """Pickles, but does not unpickle."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(one)
        self.two = two


def raises_what_cannot_be_pickled(_: TaskContext) -> None:
    raise TwoArguments(1, 2)


def returns_what_cannot_be_pickled(_: TaskContext) -> object:
    return lambda: None


def sleeps(_: TaskContext) -> None:
    time.sleep(60)


class Started:
    """Says in a file who runs it, then sleeps; or sends much."""

    def __init__(self, path: Path, *, size: int = 0) -> None:
        self.path = path
        self.size = size

    def __call__(self, _: TaskContext) -> bytes:
        grandchild = os.posix_spawn("/bin/sleep", ["sleep", "60"], {}) if not self.size else 0
        self.path.write_text(f"{os.getpid()} {grandchild}")
        if self.size:
            return b"x" * self.size
        time.sleep(60)
        return b""
