"""A worker that dies at a chosen point: before a statement is sent, when its answer is there but unread, or after it.

Runs as a process of its own. The points are found by a run without one: each statement that the worker sends has three,
numbered by how often it came, and those of settling are told apart by the states that they write.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import threading
from collections import Counter
from collections.abc import Callable, Generator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec
import psycopg
from psycopg.sql import Composable

from millpond import Client, ExecutorRegistry, JobContext, PoolSettings, Worker, WorkerSettings
from millpond.events import Event, JobsSettled
from millpond.settings import DEFAULT_SCHEMA
from millpond.store.statement import compose
from tests.proof.app import ledger

BEFORE, SENT, AFTER = "before", "sent", "after"

SLOTS: Final = 2
HELD: Final = 5

_WAIT_R: Final = 1
"""What psycopg's generators yield when all is sent, and the answer is waited for."""


class Deathwatch:
    """Counts the points, and ends the process at one of them."""

    def __init__(self, last: str | None) -> None:
        self._last = last
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self.points: list[str] = []

    def point(self, name: str, phase: str, answer: int | None = None) -> None:
        """The process is at a point; it dies when that is its last. `answer`: the socket on which one is waited for."""
        with self._lock:
            self._counts[f"{name}:{phase}"] += 1
            label = f"{name}:{phase}:{self._counts[f'{name}:{phase}']}"
            self.points.append(label)
            if label == self._last:
                if answer is not None:
                    select.select([answer], [], [])  # the server has done it, and has said so
                os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """See every statement of ours on every connection."""
        for cursor in (psycopg.Cursor, psycopg.AsyncCursor):
            self._note_statements(cursor)
        for connection in (psycopg.Connection, psycopg.AsyncConnection):
            self._watch_waits(connection)

    def _note_statements(self, kind: Any) -> None:
        execute = kind.execute

        def noting(cursor: Any, query: Any, params: Any = None, **options: Any) -> Any:
            cursor.connection.statement_under_way = _name(query, params)
            return execute(cursor, query, params, **options)

        kind.execute = noting

    def _watch_waits(self, kind: Any) -> None:
        wait = kind.wait

        def watching(connection: Any, work: Any, *args: Any, **options: Any) -> Any:
            name = getattr(connection, "statement_under_way", None)
            if name is None:
                return wait(connection, work, *args, **options)
            connection.statement_under_way = None
            return wait(connection, self._watched(name, work, connection.fileno()), *args, **options)

        kind.wait = watching

    def _watched(self, name: str, work: Generator[Any, Any, Any], socket: int) -> Generator[Any, Any, Any]:
        """The driver's own steps, with the points in between."""
        self.point(name, BEFORE)
        waits_for = next(work)
        try:
            while True:
                if waits_for == _WAIT_R:
                    self.point(name, SENT, socket)
                ready = yield waits_for
                waits_for = work.send(ready)
        except StopIteration as end:
            self.point(name, AFTER)
            return end.value


def _name(query: Any, params: Any) -> str | None:
    """The name of a statement of ours, or its first word; None for any other."""
    text = query.as_string(None) if isinstance(query, Composable) else str(query)
    if (word := text.partition(" ")[0]) in ("BEGIN", "COMMIT", "LISTEN"):
        return word
    name = _names().get(text.partition("\n")[0])
    if name == "settle_jobs":
        states = sorted({outcome["state"] for outcome in msgspec.json.decode(params["outcomes"])})
        return f"settle_jobs({'+'.join(states)})"
    return name


@cache
def _names() -> dict[str, str]:
    """The worker's statements by their first line."""
    folder = files("millpond.store").joinpath("sql")
    names = {entry.name.removesuffix(".sql") for entry in folder.iterdir()} - {"insert_jobs"}
    return {compose(name, DEFAULT_SCHEMA, "named").text.partition("\n")[0]: name for name in names}


# ── the scene ──


class Scene:
    """A worker's short life: it runs, fails, promotes and reaps, is filled with jobs, and is told to leave."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._completed = 0
        self._holding = 0

    async def play(self) -> None:
        settings = WorkerSettings(
            pool=PoolSettings(worker_count=SLOTS, graceful_timeout=60.0),
            stale_timeout=60.0,
            beat_interval=0.05,
            poll_interval=0.05,
            base_backoff=0.01,
            max_backoff=0.01,
        )
        with psycopg.connect(self._dsn) as connection:
            (jobs,) = connection.execute("SELECT count(*) FROM millpond.jobs").fetchone() or (0,)
        async with Worker(self._dsn, self._registry(), settings=settings, observe=self._observe) as worker:
            await _eventually(lambda: self._completed == jobs)
            await asyncio.to_thread(self._enqueue_what_hangs)
            await _eventually(lambda: self._holding == SLOTS)
            await asyncio.sleep(0.12)  # two beats
            worker.stop()
            await asyncio.sleep(0.05)  # what has not started is handed back
            worker.hurry()

    def _registry(self) -> ExecutorRegistry:
        registry = ExecutorRegistry()

        @registry.executes("quick")
        async def quick(ctx: JobContext, args: dict[str, Any]) -> None:
            with ledger().attempt(ctx):
                pass

        @registry.executes("fails once")
        def fail_once(ctx: JobContext, args: dict[str, Any]) -> None:
            with ledger().attempt(ctx):
                if ctx.attempt == 1:
                    raise ValueError("not yet")

        @registry.executes("hangs")
        async def hang(ctx: JobContext, args: dict[str, Any]) -> None:
            with ledger().attempt(ctx):
                self._holding += 1
                await asyncio.Event().wait()

        return registry

    def _observe(self, event: Event) -> None:
        if isinstance(event, JobsSettled):
            self._completed += event.states.get("completed", 0)

    def _enqueue_what_hangs(self) -> None:
        client = Client()
        jobs = [client.job({}, tenant=str(number), executor="hangs") for number in range(HELD)]
        with psycopg.connect(self._dsn) as connection:
            client.enqueue_many(connection, jobs)


async def _eventually(fact: Callable[[], bool]) -> None:
    while not fact():  # noqa: ASYNC110 - told by another thread
        await asyncio.sleep(0.002)


def play(dsn: str, last: str | None, points: str) -> None:
    """Play the scene up to its last point, or to its end; then write down which points there were."""
    ledger()
    watch = Deathwatch(last)
    watch.install()
    asyncio.run(Scene(dsn).play())
    Path(points).write_text("\n".join(watch.points), "utf-8")
