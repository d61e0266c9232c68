"""The worker in a thread, for programs without an event loop: a WSGI application, a script."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self

from millpond.errors import MillpondError
from millpond.events import Observe, ObserveJobs
from millpond.registry import ExecutorRegistry
from millpond.settings import WorkerSettings
from millpond.worker.tally import Tally, WorkerHealth
from millpond.worker.worker import Worker


class WorkerThread:
    """A worker with an event loop and a thread of its own: `start()`, `stop()`, or `with WorkerThread(...):`."""

    def __init__(
        self,
        dsn: str,
        registry: ExecutorRegistry,
        *,
        settings: WorkerSettings | None = None,
        observe: Observe | None = None,
        observe_jobs: ObserveJobs | None = None,
    ) -> None:
        """As for Worker."""
        self._worker = Worker(dsn, registry, settings=settings, observe=observe, observe_jobs=observe_jobs)
        self._thread = threading.Thread(target=self._work, name="millpond-worker", daemon=True)
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._tally: Tally | None = None

    def start(self) -> Self:
        """Start, and wait until the worker claims. Raises what `Worker.run` raises. A thread starts once."""
        if self._thread.ident is not None:
            raise MillpondError("This WorkerThread was started before; make another one.")
        self._thread.start()
        self._started.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def stop(self, timeout: float | None = None) -> bool:
        """Stop as `Worker.stop` does, and wait for the end, at most `timeout` seconds; whether it has ended."""
        self._worker.stop()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def finished(self, timeout: float | None = None) -> Tally | None:
        """Wait for the end, at most `timeout` seconds; what was done, None while it goes on. Raises what ended it."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        if self._thread.is_alive():
            return None
        if self._error is not None:
            raise self._error
        return self._tally

    def health(self) -> WorkerHealth:
        """How the worker is at this moment."""
        return self._worker.health()

    def hurry(self) -> None:
        """End the grace of a stop now."""
        self._worker.hurry()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _work(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as error:  # noqa: BLE001 - kept for start(), which raises it where somebody can see it
            self._error = error
        finally:
            self._started.set()

    async def _run(self) -> None:
        async with self._worker as worker:
            self._started.set()
            self._tally = await worker.finished()
