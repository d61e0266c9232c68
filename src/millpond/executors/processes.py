"""Runs functions in child processes: each child has a pipe of its own, so what kills one is nobody else's business.

The ready-made pools share a pipe or a lock between their children: there, a child that is killed while it sends an
answer blocks or breaks the whole pool. Here a thread of the caller's waits for the one child that works for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterable
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any, Final, Protocol, TypeAlias

from millpond.errors import ProcessDied

Work: TypeAlias = tuple[Callable[[Any], object], object]
"""A function and its argument; both, and what it returns, must be picklable."""

Answer: TypeAlias = tuple[object, BaseException | None, str]
"""What a function returned; or else what it raised, and the traceback of that."""

_PATIENCE: Final = 1.0
"""Seconds that an idle child has to end when dismissed, before it is killed."""


class Employer(Protocol):
    """Whoever a child works for."""

    child: Child | None

    @property
    def cancelled(self) -> bool:
        """Whether it no longer wants an answer."""


class Processes:
    """Child processes, made on demand and kept. Its methods may be called from any thread."""

    def __init__(self, most: int | None) -> None:
        """At most `most` children; None: one for each core."""
        self._vacancies = threading.BoundedSemaphore(most or os.cpu_count() or 1)
        self._context = _starter()
        self._lock = threading.Lock()  # for what follows, and for every `child` of an employer
        self._idle: list[Child] = []
        self._closed = False

    def call(self, employer: Employer, begin: Callable[[], Work]) -> object:
        """Run a function in a child, and return or raise what it does. Blocks until then.

        `begin` is called once a child is free, and says what to run. Raises ProcessDied when the child ends first, and
        CancelledError when the employer was cancelled before there was a child.
        """
        with self._vacancies:
            answer = None
            while answer is None:
                child = self._hired(employer)
                try:
                    answer = child.ask(pickle.dumps(begin()))
                finally:
                    with self._lock:
                        employer.child = None
                    self._put_back(child)
        return _opened(pickle.loads(answer))  # noqa: S301 - from our own child

    def interrupt(self, employer: Employer) -> None:
        """End the child that works for this employer, and what that has started in turn; its `call` then raises."""
        with self._lock:
            if employer.child is not None:
                employer.child.kill()

    def close(self) -> list[Child]:
        """Let the idle children end, and give them to be seen off. Those that work end when they have done."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for child in idle:
            child.dismiss()
        return idle

    def _hired(self, employer: Employer) -> Child:
        if employer.cancelled:
            raise asyncio.CancelledError
        child = self._idle_child() or Child(self._context)
        with self._lock:
            if not employer.cancelled:  # else `interrupt` may have come already, and found no child
                employer.child = child
                return child
        self._put_back(child)
        raise asyncio.CancelledError

    def _idle_child(self) -> Child | None:
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if not child.has_ended:
                    return child
        return None

    def _put_back(self, child: Child) -> None:
        with self._lock:
            if not self._closed:
                self._idle.append(child)
                return
        child.dismiss()


class Child:
    """One child process and the pipe to it."""

    def __init__(self, context: BaseContext) -> None:
        """Returns when it is ready. Raises ProcessDied."""
        self._is_new = True
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), name="millpond-child", daemon=True)  # type: ignore[attr-defined]
        self._process.start()
        theirs.close()  # so that the pipe ends with the child
        self._heard()

    @property
    def has_ended(self) -> bool:
        """Whether an idle child is no more: it says nothing unasked, so all that can be heard is the pipe's end."""
        return self._pipe.poll()

    def ask(self, work: bytes) -> bytes | None:
        """Send work and wait for the answer. None: the child ended while it was idle, and has taken nothing.

        Raises ProcessDied when it ended over this work. Whatever else goes wrong ends it, too.
        """
        is_new, self._is_new = self._is_new, False
        try:
            self._pipe.send_bytes(work)
        except OSError:
            if not is_new:
                return None
        try:
            return self._heard()
        except BaseException:
            self.kill()
            raise

    def _heard(self) -> bytes:
        try:
            return self._pipe.recv_bytes()
        except (EOFError, OSError) as error:
            self._process.join(_PATIENCE)
            raise ProcessDied(self._process.exitcode) from error

    def kill(self) -> None:
        """End it now, and whatever it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError, AttributeError):  # gone already; not POSIX
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()

    def dismiss(self) -> None:
        """Let an idle child end."""
        self._pipe.close()

    def end(self) -> None:
        """Wait until a dismissed child has ended; kill it if that takes too long."""
        self._process.join(_PATIENCE)
        if self._process.is_alive():
            self.kill()


def see_off(children: Iterable[Child]) -> None:
    """Wait until children that were dismissed have ended."""
    for child in children:
        child.end()


def _starter() -> BaseContext:
    """How children begin: never as a copy of this process, whose locks may be held by threads that a copy lacks."""
    methods = multiprocessing.get_all_start_methods()
    return multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")


def _opened(answer: Answer) -> object:
    value, error, trace = answer
    if error is not None:
        error.add_note(f"In the child process:\n{trace}")
        raise error
    return value


# ── in the child ──


def _serve(pipe: Connection) -> None:
    with contextlib.suppress(AttributeError, OSError):  # not POSIX; or a leader already
        os.setsid()  # a signal to the parent's group (Ctrl-C) is the parent's to heed
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError):  # the pipe has ended: nobody will ask again
        pipe.send_bytes(b"ready")
        while True:
            pipe.send_bytes(_answered(pipe.recv_bytes()))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _answered(work: bytes) -> bytes:
    try:
        function, argument = pickle.loads(work)  # noqa: S301 - from our own parent
        value = function(argument)
        if inspect.isawaitable(value):
            value = asyncio.run(_awaited(value))
        return pickle.dumps((value, None, ""))
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the answer
        return _told(error)


async def _awaited(value: Awaitable[object]) -> object:
    return await value


def _told(error: BaseException) -> bytes:
    """The error for the other side, where not every error can be put together again."""
    trace = "".join(traceback.format_exception(error))
    try:
        told = pickle.dumps((None, error, trace))
        pickle.loads(told)  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - there is no end to what pickling may raise
        return pickle.dumps((None, RuntimeError(f"{type(error).__qualname__}, which cannot be pickled"), trace))
    return told
