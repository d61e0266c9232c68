"""What the pool's tests look with: who was told what, how often; and work that ends when it is told."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from millpond.executors import Isolation
from millpond.outcome import Outcome
from millpond.tenancy.task import Task, TaskContext

PATIENCE = 10.0
"""Seconds after which a fact that does not come fails the test."""


class Told:
    """The outcomes that were told, by the task's id."""

    def __init__(self) -> None:
        self.outcomes: dict[object, Outcome] = {}
        self.times: Counter[object] = Counter()
        self._news = asyncio.Event()
        self._ids = itertools.count()

    def __call__(self, task: Task, outcome: Outcome) -> None:
        """To be used as `complete`."""
        self.times[task.id] += 1
        self.outcomes[task.id] = outcome
        self._news.set()

    def task(
        self,
        run: Callable[[TaskContext], Awaitable[object] | object],
        tenant: str = "acme",
        *,
        id: object = None,  # noqa: A002 - as Task calls it
        isolation: Isolation | None = None,
        timeout: float | None = None,
        key: str = "",
    ) -> Task:
        """A task that tells us."""
        name = f"task-{next(self._ids)}" if id is None else id
        return Task(tenant=tenant, run=run, complete=self, id=name, isolation=isolation, timeout=timeout, key=key)

    async def of(self, task: Task) -> Outcome:
        """The outcome of a task, once it is told."""
        await self.all(task)
        return self.outcomes[task.id]

    async def all(self, *tasks: Task) -> list[Outcome]:
        """The outcomes of tasks, once all are told."""
        async with asyncio.timeout(PATIENCE):
            while not all(task.id in self.outcomes for task in tasks):
                self._news.clear()
                await self._news.wait()
        return [self.outcomes[task.id] for task in tasks]

    def each_once(self) -> bool:
        """Whether nobody was told twice."""
        return all(times == 1 for times in self.times.values())


class Gate:
    """Async work that ends when it is let through."""

    def __init__(self) -> None:
        self.inside = 0
        self.most_inside = 0
        self.seen: list[TaskContext] = []
        self._opened = asyncio.Event()
        self._changed = asyncio.Event()

    async def __call__(self, context: TaskContext) -> int:
        self.seen.append(context)
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        self._changed.set()
        try:
            await self._opened.wait()
        finally:
            self.inside -= 1
            self._changed.set()
        return context.attempt

    def open(self) -> None:
        """Let everybody through, from now on."""
        self._opened.set()

    async def holds(self, number: int) -> None:
        """Wait until so many are inside."""
        async with asyncio.timeout(PATIENCE):
            while self.inside != number:
                self._changed.clear()
                await self._changed.wait()


class ThreadGate:
    """The same for plain functions; it never looks at whether it was cancelled."""

    def __init__(self) -> None:
        self.contexts: list[TaskContext] = []
        self.entered = threading.Semaphore(0)
        self._opened = threading.Event()

    def __call__(self, context: TaskContext) -> str:
        self.contexts.append(context)
        self.entered.release()
        assert self._opened.wait(PATIENCE)
        return "late"

    def open(self) -> None:
        """Let everybody through, from now on."""
        self._opened.set()

    async def holds(self, number: int) -> None:
        """Wait until so many have come in."""
        await until(lambda: len(self.contexts) >= number)


async def until(fact: Callable[[], Any]) -> None:
    """Wait for a fact that nobody announces."""
    async with asyncio.timeout(PATIENCE):
        while not fact():  # noqa: ASYNC110 - as it says
            await asyncio.sleep(0.001)


async def turn(times: int = 1) -> None:
    """Let the event loop come round, so many times."""
    for _ in range(times):
        await asyncio.sleep(0)
