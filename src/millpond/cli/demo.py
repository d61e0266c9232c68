"""`millpond demo`: the example application stdlib_index, on a database of its own, from nothing to its report."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import platform
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import psycopg
import typer
from rich.console import Console
from rich.markup import escape

from millpond.cli.worker import run_until_stopped
from millpond.clock import monotonic
from millpond.errors import MillpondError
from millpond.settings import DEFAULT_SCHEMA, PoolSettings, WorkerSettings
from millpond.shipped import shipped
from millpond.store import migrations
from millpond.store.dsn import conninfo, described
from millpond.testing import programs
from millpond.testing.server import DURABLE, EPHEMERAL, Server
from millpond.worker import failures
from millpond.worker.worker import Worker

_INTERRUPTED = 128 + signal.SIGINT


def demo(
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the database in this folder: to look around, or to go on.")
    ] = None,
    path: Annotated[
        Path | None, typer.Option(exists=True, file_okay=False, help="The folder to index; else the standard library.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many files, taken evenly from all.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes that read files; one for each core unless said.")
    ] = None,
    # Not from the environment: who only wants to see a demo has not asked for two schemas in their own database.
    dsn: Annotated[str | None, typer.Option(help="An existing database, instead of one made for the demo.")] = None,
) -> None:
    """Index the Python standard library: each package is a tenant, each file a job.

    Starts a PostgreSQL of its own in a temporary folder. The code is the example stdlib_index. Leaves with 1 when a job
    was discarded, as that of a file which does not parse is (see --path).
    """
    if keep is not None and dsn is not None:
        raise typer.BadParameter("takes the place of --dsn: give one of them.", param_hint="--keep")
    if importlib.util.find_spec("psycopg_pool") is None:
        raise MillpondError('The demo needs its extra: pip install "millpond[demo]".')
    console = Console(highlight=False)
    logging.getLogger(failures.__name__).addHandler(logging.NullHandler())  # the report names what failed
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _database(console, keep, dsn) as database:
            status = _index(console, database, path, limit, workers)
            _show_around(console, database, keep, dsn, stay=status != _INTERRUPTED)
    except KeyboardInterrupt:
        status = _INTERRUPTED
    raise typer.Exit(status)


@contextlib.contextmanager
def _database(console: Console, keep: Path | None, dsn: str | None) -> Iterator[str]:
    """The conninfo of a database that is there for the body."""
    if dsn is not None:
        yield conninfo(dsn)
        return
    server = Server.embedded(keep, EPHEMERAL if keep is None else DURABLE)
    try:
        server.start()
    except OSError as error:
        raise MillpondError(f"PostgreSQL cannot be set up: {error}.") from error
    with server:
        console.print(f"PostgreSQL runs in {'a temporary folder' if keep is None else escape(str(keep))}.")
        yield server.dsn()


def _index(console: Console, dsn: str, path: Path | None, limit: int | None, workers: int | None) -> int:
    """Set up, enqueue, work, and report, as the example's README does by hand; the exit status."""
    os.environ["MILLPOND_DSN"] = dsn
    sys.path.insert(0, str(shipped("examples/stdlib_index").parent))
    from stdlib_index import report
    from stdlib_index.enqueue import STDLIB, enqueue

    migrations.upgrade(dsn, DEFAULT_SCHEMA)
    with psycopg.connect(dsn, autocommit=True) as conn:
        fresh = enqueue(conn, path or STDLIB, limit)
        what = f"Python {platform.python_version()}'s standard library" if path is None else escape(str(path))
        console.print(f"{_counted(fresh, 'job')} enqueued: one for each new file of {what}.")
        waiting = report.unfinished(conn)
        seconds = asyncio.run(_work(console, dsn, workers)) if waiting else 0.0
        done = waiting - report.unfinished(conn)
        found = report.report(conn)
        report.show(console, found)
    if done:
        console.print(f"speed  {_counted(done, 'job')} in {seconds:.1f} s: {done / seconds:,.0f} per second")
    if done < waiting:
        console.print(f"Interrupted: {_counted(waiting - done, 'job')} still to do.")
        return _INTERRUPTED
    if not found.packages and not found.failures:
        raise MillpondError(f"There is no .py file in {path or STDLIB}.")
    return 1 if found.failures else 0


async def _work(console: Console, dsn: str, workers: int | None) -> float:
    """Run a worker until nothing is left to do, and show how far it is; the seconds it took."""
    from stdlib_index.jobs import registry
    from stdlib_index.watch import watch

    processes = workers or os.cpu_count() or 1
    pool = PoolSettings(worker_count=processes, process_count=processes, graceful_timeout=5.0)
    worker = Worker(dsn, registry, settings=WorkerSettings(pool=pool, base_backoff=0.5, exit_when_done=True))
    ended = asyncio.Event()
    watching = asyncio.ensure_future(watch(dsn, console, ended))
    started = monotonic()
    try:
        await run_until_stopped(worker)
        return monotonic() - started
    finally:
        ended.set()
        await watching


def _show_around(console: Console, database: str, keep: Path | None, dsn: str | None, *, stay: bool) -> None:
    """Say how to look at what was made; a kept database stays up for that, if somebody sits there."""
    if dsn is not None:
        console.print(f"\nThe schemas stdlib_index and {DEFAULT_SCHEMA} are in {escape(described(database))}.")
    elif keep is None:
        console.print("\nTo keep the database and look around:")
        _show_command(console, "millpond demo --keep ./millpond-demo")
    elif stay and sys.stdin.isatty() and console.is_terminal:
        console.print("\nThe database stays up until you press Ctrl-C. From another terminal:")
        _show_command(console, f'{shutil.which("psql") or programs.embedded() / "psql"} "{database}"')
        _show_command(console, f'millpond status --dsn "{database}"')
        _wait_for_ctrl_c()
    else:
        console.print("\nTo start the kept database again, and go on or look around:")
        _show_command(console, shlex.join(["millpond", "demo", "--keep", str(keep)]))


def _show_command(console: Console, command: str) -> None:
    console.print(f"  {command}", style="bold", markup=False, soft_wrap=True)


def _wait_for_ctrl_c() -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # which the worker's end has set back
    with contextlib.suppress(KeyboardInterrupt):
        threading.Event().wait()


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
