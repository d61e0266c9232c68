"""`millpond worker`: runs the jobs of a registry until it is told to stop."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from millpond.cli.options import Dsn, Schema
from millpond.errors import SettingsError
from millpond.job import DEFAULT_QUEUE
from millpond.registry import ExecutorRegistry
from millpond.settings import PoolSettings, WorkerSettings
from millpond.telemetry.worker import WorkerMetrics
from millpond.worker.tally import Tally
from millpond.worker.worker import Worker

logger = logging.getLogger(__name__)

_WORKER = WorkerSettings()
_POOL = _WORKER.pool

_CUT_SHORT = 3
"""Exit status: running jobs were cancelled and handed back, or outcomes were lost with the database."""

_NEXT = {
    "stop": "Jobs that run may end within the grace; the same signal again cancels them and hands them back.",
    "hurry": "The same signal again ends this process at once; the lease gives its jobs back.",
}
"""What is said after each step of an end."""

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def _option(help_text: str, variable: str, *names: str) -> typer.models.OptionInfo:
    """An option that may also be said by a variable of the environment."""
    option: typer.models.OptionInfo = typer.Option(*names, help=help_text, envvar=f"MILLPOND_{variable}")
    return option


def worker(
    registry: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="Where the ExecutorRegistry is.")],
    dsn: Dsn,
    schema: Schema,
    queue: Annotated[list[str] | None, _option("A queue to serve; may be repeated.", "QUEUES", "--queue", "-q")] = None,
    workers: Annotated[int, _option("Jobs that run at once.", "WORKERS")] = _POOL.worker_count,
    grace: Annotated[float, _option("Seconds that jobs have to end after a stop.", "GRACE")] = _POOL.graceful_timeout,
    timeout: Annotated[float | None, _option("Seconds that an attempt may take, unless it says.", "TIMEOUT")] = None,
    poll_interval: Annotated[float, _option("Seconds between two looks.", "POLL_INTERVAL")] = _WORKER.poll_interval,
    stale_timeout: Annotated[float, _option("The lease, in seconds.", "STALE_TIMEOUT")] = _WORKER.stale_timeout,
    beat_interval: Annotated[float, _option("Seconds between two beats.", "BEAT_INTERVAL")] = _WORKER.beat_interval,
    listen: Annotated[bool, _option("Listen for wake-ups; else poll alone.", "LISTEN")] = True,
    listen_dsn: Annotated[str | None, _option("Where to listen, if not at --dsn (a pooler).", "LISTEN_DSN")] = None,
    until_done: Annotated[bool, typer.Option("--until-done", help="Stop when nothing is left to do.")] = False,
    log_level: Annotated[str, _option("debug, info, warning or error.", "LOG_LEVEL")] = "info",
) -> None:
    """Run the jobs of a registry.

    SIGTERM or SIGINT: claim no more, let running jobs end within the grace. Again: cancel them, and hand them back. A
    third time: die at once; the lease gives the jobs back.

    Leaves with 0 when everything that ran has ended by itself; 1 when it could not work, or, with --until-done, when a
    job was discarded; 3 when running jobs had to be cut short, or outcomes could not be written.
    """
    _set_up_logs(log_level)
    found = load_registry(registry)
    settings = WorkerSettings(
        schema=schema,
        queues=tuple(queue or (DEFAULT_QUEUE,)),
        pool=PoolSettings(worker_count=workers, graceful_timeout=grace, task_timeout=timeout),
        poll_interval=poll_interval,
        stale_timeout=stale_timeout,
        beat_interval=beat_interval,
        listen=listen,
        listen_dsn=listen_dsn,
        exit_when_done=until_done,
    )
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        tally = runner.run(run_until_stopped(Worker(dsn, found, settings=settings, observe=WorkerMetrics())))
    logger.info(
        "Ended: %s; %d too late, %d cut short, %d not written.",
        ", ".join(f"{jobs} {state}" for state, jobs in sorted(tally.settled.items())) or "nothing done",
        tally.stale,
        tally.cut_short,
        tally.unwritten,
    )
    if not tally.clean:
        raise typer.Exit(_CUT_SHORT)
    if until_done and tally.discarded:
        raise typer.Exit(1)


def load_registry(target: str) -> ExecutorRegistry:
    """Import `module:name` from here or from the path. Raises SettingsError, which says what is missing."""
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        raise SettingsError("registry", target, "must be module:name, such as myapp.jobs:registry.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise  # the module is there; something that it imports is not
        raise SettingsError("registry", target, f"there is no module {error.name!r} here or on the path.") from error
    found = getattr(module, name, None)
    if not isinstance(found, ExecutorRegistry):
        what = "nothing" if found is None else f"a {type(found).__name__}"
        raise SettingsError("registry", target, f"{name!r} in {module_name} is {what}, not an ExecutorRegistry.")
    return found


async def run_until_stopped(running: Worker) -> Tally:
    """Run the worker to its end. The first SIGTERM or SIGINT stops it, the second hurries it, the third kills us."""
    loop = asyncio.get_running_loop()
    steps = iter((running.stop, running.hurry))

    def on_signal(number: signal.Signals) -> None:
        step = next(steps, None)
        if step is None:
            _die(number)
        else:
            logger.info("%s: %s. %s", number.name, step.__name__, _NEXT[step.__name__])
            step()

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        return await running.run()
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)


def _die(number: signal.Signals) -> None:
    """End as the signal would have ended this process, without any goodbye."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, when it is installed (the extra `speed`)."""
    if importlib.util.find_spec("uvloop") is None:
        return None
    uvloop = importlib.import_module("uvloop")
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _set_up_logs(level: str) -> None:
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise SettingsError("log_level", level, "must be debug, info, warning or error.")
    logging.basicConfig(level=number, format="%(asctime)s %(levelname)-8s %(name)s: %(message)s")
