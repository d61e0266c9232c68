"""Runs plain functions in threads of our own: daemons that stay, made on demand. Never the loop's default executor."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from queue import SimpleQueue
from types import CoroutineType
from typing import Generic, TypeAlias, TypeVar

from millpond.executors.mailbox import Mailbox

T = TypeVar("T")

Returned: TypeAlias = Callable[[T, object, BaseException | None], None]
"""Told, on the loop's thread, of an item whose call has ended: what it returned, or else what it raised."""


class Threads(Generic[T]):
    """Resident threads that take calls off one queue, until closed. At exit nobody waits for them.

    A thread that takes a call while more are waiting wakes the next thread first. So calls that block overlap as far as
    there are threads, and a flood of short ones is worked off by a thread that is awake, without a wake-up for each.
    """

    def __init__(self, most: int, mailbox: Mailbox, returned: Returned[T]) -> None:
        """At most `most` threads."""
        self._most = most
        self._mailbox = mailbox
        self._returned = returned
        self._calls: deque[tuple[Callable[[T], object], T]] = deque()
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._lock = threading.Lock()  # for what follows
        self._threads = 0
        self._idle = 0
        self._waking = False
        self._closed = False

    def submit(self, call: Callable[[T], object], item: T) -> None:
        """Have `call(item)` run in a thread, in an empty context."""
        self._calls.append((call, item))
        if not self._waking:
            self._wake()

    def close(self) -> None:
        """Start nothing more. Threads that run nothing end now; those that do, when they have done."""
        with self._lock:
            self._closed = True
            self._calls.clear()
            for _ in range(self._idle):
                self._bell.put(None)

    def forget(self) -> None:
        """In a forked child, where at most the forking thread is left: it is to end when it comes back."""
        self._lock = threading.Lock()  # the old one may be held by a thread that is not here
        self._closed = True

    def _wake(self) -> None:
        """Call one thread, unless all are busy: those look for more by themselves."""
        with self._lock:
            if self._waking or self._closed:
                return
            if self._idle:
                self._waking = True
                self._bell.put(None)
            elif self._threads < self._most:
                self._hire()

    def _hire(self) -> None:
        try:
            threading.Thread(target=self._serve, name="millpond-thread", daemon=True).start()
        except RuntimeError as error:  # the system gives no more threads
            while not self._threads and self._calls:
                _, item = self._calls.popleft()
                self._mailbox.post(self._returned, item, None, error)
        else:
            self._waking = True
            self._threads += 1

    def _serve(self) -> None:
        with self._lock:
            self._waking = False
        while (taken := self._next()) is not None:
            call, item = taken
            value, error = None, None
            try:
                value = Context().run(call, item)
                if type(value) is CoroutineType:
                    value.close()
                    raise TypeError('run gave a coroutine in a thread, where nobody awaits it; set isolation="loop".')
            except BaseException as raised:  # noqa: BLE001 - whatever it is, it fails this call and nothing else
                error = raised
            self._mailbox.post(self._returned, item, value, error)
            del taken, call, item, value, error  # a thread that waits keeps nothing of what it ran
        with self._lock:
            self._threads -= 1

    def _next(self) -> tuple[Callable[[T], object], T] | None:
        while not self._closed:
            with suppress(IndexError):
                call = self._calls.popleft()
                if self._calls and not self._waking:
                    self._wake()
                return call
            with self._lock:
                if self._calls or self._closed:
                    continue
                self._idle += 1
            self._bell.get()
            with self._lock:
                self._idle -= 1
                self._waking = False
        return None


async def in_thread(call: Callable[[], T]) -> T:
    """Run one call in a thread of its own, which nobody waits for at exit; what it raises is raised here.

    When this is cancelled, the thread runs on and what it brings is dropped.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Callable[[], T]] = loop.create_future()

    def tell(answer: Callable[[], T]) -> None:
        if not done.done():
            done.set_result(answer)

    def run() -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(tell, _answer(call))

    threading.Thread(target=run, name="millpond-call", daemon=True).start()
    return (await done)()


def _answer(call: Callable[[], T]) -> Callable[[], T]:
    """Gives, or raises, what the call did. A future would refuse a StopIteration."""
    try:
        value = Context().run(call)
    except BaseException as raised:  # noqa: BLE001 - raised again on the other side
        error = raised

        def fail() -> T:
            raise error

        return fail
    return lambda: value
