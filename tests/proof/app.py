"""What the proofs' processes run: executors that tell a ledger, on a session of their own, what they see."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import psycopg

from millpond import ExecutorRegistry, JobContext

registry = ExecutorRegistry()


class Ledger:
    """Notes starts and ends of attempts, each committed at once: what is noted has happened, whoever dies next."""

    def __init__(self, dsn: str) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True, application_name="ledger")
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def attempt(self, ctx: JobContext) -> Iterator[None]:
        """An attempt from its start to its end, unless it is cut short."""
        place = self._run(
            "INSERT INTO proof.starts (job_id, attempt, claim_token, pid) VALUES (%s, %s, %s, %s) RETURNING place",
            (ctx.job.id, ctx.attempt, ctx.job.claim_token, os.getpid()),
        )
        yield
        self._run("UPDATE proof.starts SET finished_at = clock_timestamp() WHERE place = %s RETURNING place", (place,))

    def _run(self, statement: str, params: tuple[int, ...]) -> int:
        with self._lock:
            found = self._connection.execute(statement, params).fetchone()
        assert found is not None
        return int(found[0])


@cache
def ledger() -> Ledger:
    """This process's."""
    return Ledger(os.environ["MILLPOND_DSN"])


@registry.executes("async")
async def wait(ctx: JobContext, args: dict[str, Any]) -> None:
    with ledger().attempt(ctx):
        await asyncio.sleep(args["seconds"])


@registry.executes("sync")
def wait_in_a_thread(ctx: JobContext, args: dict[str, Any]) -> None:
    with ledger().attempt(ctx):
        time.sleep(args["seconds"])


@registry.executes("cpu")
def count(ctx: JobContext, args: dict[str, Any]) -> None:
    with ledger().attempt(ctx):
        end = time.thread_time() + args["seconds"] / 10
        while time.thread_time() < end:
            sum(range(1_000))


@registry.executes("fails")
async def fail(ctx: JobContext, args: dict[str, Any]) -> None:
    with ledger().attempt(ctx):
        await asyncio.sleep(args["seconds"])
        raise ValueError("always")


@registry.executes("effect")
def write(ctx: JobContext, args: dict[str, Any]) -> None:
    """The effect and the completion commit together."""
    with ledger().attempt(ctx), psycopg.connect(os.environ["MILLPOND_DSN"]) as connection:
        connection.execute("INSERT INTO proof.effects (job_id) VALUES (%s)", (ctx.job.id,))
        time.sleep(args["seconds"])
        ctx.complete_in(connection)


@registry.executes("hang")
async def hang(ctx: JobContext, args: dict[str, Any]) -> None:
    """Never ends by itself, the first time."""
    with ledger().attempt(ctx):
        if ctx.attempt == 1:
            await asyncio.Event().wait()


@registry.executes("poison")
def poison(ctx: JobContext, args: dict[str, Any]) -> None:
    """Kills its worker, one way or another."""
    with ledger().attempt(ctx):
        match args["way"]:
            case "SIGKILL":
                os.kill(os.getpid(), signal.SIGKILL)
            case "segfault":
                ctypes.string_at(0)
            case "out of memory":  # as the kernel's killer would have it
                os._exit(137)


@registry.executes("poison apart", isolation="process")
def poison_apart(ctx: JobContext, args: dict[str, Any]) -> None:
    """Kills the child process that it runs in."""
    with ledger().attempt(ctx):
        ctypes.string_at(0)
