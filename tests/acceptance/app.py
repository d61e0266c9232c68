"""A small application whose worker runs as a process of its own: `millpond worker app:registry`, from this folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Any

import psycopg

from millpond import ExecutorRegistry, JobContext

registry = ExecutorRegistry()


def ledger(ctx: JobContext) -> None:
    """Note, whatever becomes of the job, that this attempt has started."""
    with psycopg.connect(os.environ["MILLPOND_DSN"]) as connection:
        connection.execute(
            "INSERT INTO ledger (job_id, attempt, pid) VALUES (%s, %s, %s)", (ctx.job.id, ctx.attempt, os.getpid())
        )


@registry.executes("note")
def note(ctx: JobContext, args: dict[str, Any]) -> None:
    ledger(ctx)


@registry.executes("hang")
async def hang(ctx: JobContext, args: dict[str, Any]) -> None:
    await asyncio.to_thread(ledger, ctx)
    await asyncio.Event().wait()


@registry.executes("swallow")
async def swallow(ctx: JobContext, args: dict[str, Any]) -> None:
    await asyncio.to_thread(ledger, ctx)
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@registry.executes("hang once")
async def hang_once(ctx: JobContext, args: dict[str, Any]) -> None:
    await asyncio.to_thread(ledger, ctx)
    if ctx.attempt == 1:
        await asyncio.Event().wait()


@registry.executes("kill")
def kill(ctx: JobContext, args: dict[str, Any]) -> None:
    ledger(ctx)
    os.kill(os.getpid(), signal.SIGKILL)


@registry.executes("in a child", isolation="process")
def in_a_child(ctx: JobContext, args: dict[str, Any]) -> None:
    ledger(ctx)
    with psycopg.connect(os.environ["MILLPOND_DSN"]) as connection:
        ctx.complete_in(connection)


@registry.executes("kill the child", isolation="process")
def kill_the_child(ctx: JobContext, args: dict[str, Any]) -> None:
    ledger(ctx)
    os.kill(os.getpid(), signal.SIGKILL)
