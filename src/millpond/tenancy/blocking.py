"""The tenant pool for programs without an event loop: it brings one, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from millpond.errors import SubmitError
from millpond.executors import Isolation, isolation_of
from millpond.outcome import Completed, Failed, Outcome
from millpond.settings import PoolSettings
from millpond.tenancy import forks
from millpond.tenancy.health import Health, Room
from millpond.tenancy.instrument import Instrument
from millpond.tenancy.pool import TenantPool
from millpond.tenancy.task import Task, TaskContext
from millpond.tenancy.tenants import TenantProvider

T = TypeVar("T")

_CANCELLED: Final = "its future was cancelled"


class BlockingTenantPool:
    """A TenantPool whose methods any thread may call, and a context manager.

    Each call waits until the pool's event loop has done it: about as long as two switches of threads. Tasks are
    completed on that loop's thread.
    """

    def __init__(
        self,
        settings: PoolSettings | None = None,
        *,
        tenants: TenantProvider | None = None,
        instrument: Instrument | None = None,
    ) -> None:
        self._pool = TenantPool(settings, tenants=tenants, instrument=instrument)
        self._starting = threading.Lock()  # held as long as a start takes
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # for what follows
        self._loop: asyncio.AbstractEventLoop | None = None  # while the pool is there to be asked
        self._told_to_stop: asyncio.Event | None = None
        self._forked = False
        forks.poison(self)

    def call(
        self,
        tenant: str,
        function: Callable[..., Any],
        *args: Any,
        isolation: Isolation | None = None,
        timeout: float | None = None,
        key: str = "",
    ) -> Future[Any]:
        """Have `function(*args)` run as a task, and give a future of what it returns or raises.

        Raises as `submit` does. Cancelling the future cancels the task. A task that was cancelled or handed back leaves
        a cancelled future.
        """
        future: Future[Any] = Future()
        task = Task(
            tenant=tenant,
            run=partial(_called, function, args),
            complete=partial(_resolve, future),
            isolation=isolation or isolation_of(function),
            timeout=timeout,
            key=key,
        )
        self.submit(task)
        future.add_done_callback(lambda done: self.cancel(task, _CANCELLED) if done.cancelled() else None)
        return future

    def submit(self, task: Task) -> None:
        """As `TenantPool.submit`."""
        self._ask(lambda: self._pool.submit(task))

    def submit_many(self, tasks: Iterable[Task]) -> list[tuple[Task, SubmitError]]:
        """As `TenantPool.submit_many`, and for many tasks much faster than `submit` for each."""
        given = list(tasks)
        return self._ask(lambda: self._pool.submit_many(given))

    def cancel(self, task: object, reason: str = "cancelled") -> bool:
        """As `TenantPool.cancel`."""
        return self._ask(lambda: self._pool.cancel(task, reason))

    def drained(self) -> None:
        """As `TenantPool.drained`. Not for callbacks, on which the draining itself would wait."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("drained was called on the pool's own thread, which it would block for ever.")
        if (waiting := self._ask(self._drained)) is not None:
            waiting.result()

    def room(self) -> Room:
        """As `TenantPool.room`."""
        return self._ask(self._pool.room)

    def active_tenants(self) -> tuple[str, ...]:
        """As `TenantPool.active_tenants`."""
        return self._ask(self._pool.active_tenants)

    def health(self) -> Health:
        """As `TenantPool.health`. Does not wait for the loop, which may be what is unhealthy."""
        return self._pool.health()

    def start(self) -> None:
        """Begin to take tasks. Raises what the tenant provider raises."""
        started: Future[None] = Future()
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), name="millpond-pool", daemon=True)
        with self._starting:
            if self._thread is not None and self._thread.is_alive():
                raise RuntimeError("The pool was started already.")
            self._thread = thread
            thread.start()
            error = started.exception()
        if error is not None:
            thread.join()
            raise error

    def stop(self, graceful_timeout: float | None = None) -> None:
        """As `TenantPool.stop`: returns when the pool has stopped, unless the pool's own thread calls it."""
        if self._forked:
            return
        with self._starting:
            thread = self._thread
        self._ask(lambda: self._stop(graceful_timeout))
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def hurry(self) -> None:
        """As `TenantPool.hurry`."""
        self._ask(lambda: self._stop(0.0))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def after_fork(self) -> None:
        """In a forked child: the loop is the parent's. What is asked is refused by the pool itself."""
        self._forked = True

    async def _serve(self, started: Future[None]) -> None:
        try:
            async with self._pool:
                self._told_to_stop = asyncio.Event()
                with self._lock:
                    self._loop = asyncio.get_running_loop()
                started.set_result(None)
                await self._told_to_stop.wait()
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)
        finally:
            with self._lock:
                self._loop = None
            await asyncio.sleep(0)  # whoever asked before that, is answered

    def _drained(self) -> Future[None] | None:
        if self._loop is None or self._forked:
            return None
        return asyncio.run_coroutine_threadsafe(self._pool.drained(), self._loop)

    def _stop(self, graceful_timeout: float | None) -> None:
        if graceful_timeout is not None:
            self._pool.hurry(graceful_timeout)
        if self._told_to_stop is not None:
            self._told_to_stop.set()

    def _ask(self, question: Callable[[], T]) -> T:
        """Have something done on the loop's thread, and wait for the answer. Without a loop, nothing is in the way."""
        if self._forked or threading.current_thread() is self._thread:
            return question()
        answer: Future[T] = Future()
        with self._lock:
            loop = self._loop
            if loop is not None:
                loop.call_soon_threadsafe(_answer, question, answer)
        return question() if loop is None else answer.result()


def _answer(question: Callable[[], T], answer: Future[T]) -> None:
    try:
        answer.set_result(question())
    except BaseException as error:  # noqa: BLE001 - raised where it was asked
        answer.set_exception(error)


def _called(function: Callable[..., Any], args: tuple[Any, ...], _: TaskContext) -> Any:
    return function(*args)


def _resolve(future: Future[Any], _: Task, outcome: Outcome) -> None:
    if not isinstance(outcome, Completed | Failed):
        future.cancel()
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(outcome, Completed):
        future.set_result(outcome.result)
    elif isinstance(outcome, Failed):
        future.set_exception(outcome.error)
