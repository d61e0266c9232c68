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
from millpond.registry import ExecutorRegistry
from millpond.settings import DEFAULT_QUEUE, PoolSettings, WorkerSettings
from millpond.telemetry.worker import WorkerMetrics
from millpond.worker.worker import Worker

_WORKER = WorkerSettings()
_POOL = _WORKER.pool

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def worker(
    registry: Annotated[str, typer.Argument(metavar="MODULE:NAME", help="Where the ExecutorRegistry is.")],
    dsn: Dsn,
    schema: Schema,
    queue: Annotated[list[str] | None, typer.Option("--queue", "-q", help="A queue to serve; may be repeated.")] = None,
    workers: Annotated[int, typer.Option(help="Jobs that run at once.")] = _POOL.worker_count,
    grace: Annotated[float, typer.Option(help="Seconds that jobs have to end after a stop.")] = _POOL.graceful_timeout,
    timeout: Annotated[float | None, typer.Option(help="Seconds that an attempt may take, unless it says.")] = None,
    poll_interval: Annotated[float, typer.Option(help="Seconds between two looks.")] = _WORKER.poll_interval,
    stale_timeout: Annotated[float, typer.Option(help="The lease, in seconds.")] = _WORKER.stale_timeout,
    beat_interval: Annotated[float, typer.Option(help="Seconds between two beats.")] = _WORKER.beat_interval,
    listen: Annotated[bool, typer.Option(help="Listen for wake-ups; else poll alone.")] = True,
    listen_dsn: Annotated[str | None, typer.Option(help="Where to listen, when --dsn leads through a pooler.")] = None,
    until_done: Annotated[bool, typer.Option("--until-done", help="Stop when nothing is left to do.")] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run the jobs of a registry.

    SIGTERM or SIGINT: claim no more, let running jobs end within the grace. Again: cancel them, and hand them back. A
    third time: die at once; the lease gives the jobs back.
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
        runner.run(_work(dsn, found, settings))


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


async def _work(dsn: str, registry: ExecutorRegistry, settings: WorkerSettings) -> None:
    running = Worker(dsn, registry, settings=settings, observe=WorkerMetrics())
    loop = asyncio.get_running_loop()
    steps = iter((running.stop, running.hurry))

    def on_signal(number: signal.Signals) -> None:
        step = next(steps, None)
        if step is None:
            _die(number)
        else:
            logging.getLogger(__name__).info("%s: %s.", number.name, step.__name__)
            step()

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    try:
        await running.run()
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
