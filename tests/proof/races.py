"""Two or three sessions at once, in an order that the test decides by facts of the server."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Generic, TypeVar

import psycopg

from tests.proof.hands import Hands
from tests.proof.mutation import GATE, mutated

T = TypeVar("T")

_DEADLINE = 30.0


class UnderWay(Generic[T]):
    """Something that a session does in a thread."""

    def __init__(self, work: Future[T], pid: int, onlooker: psycopg.Connection[Any]) -> None:
        self._work = work
        self._pid = pid
        self._onlooker = onlooker

    def waits(self) -> bool:
        """Wait until it is done, or stands in front of somebody's lock; whether it stands."""
        eventually(lambda: self._work.done() or self._blocked())
        return not self._work.done()

    def result(self) -> T:
        """What it came to."""
        return self._work.result(_DEADLINE)

    def _blocked(self) -> bool:
        found = self._onlooker.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", [self._pid]).fetchone()
        return found == (True,)


class Sessions:
    """Starts work in threads; all of it has ended when the `with` has."""

    def __init__(self, pool: ThreadPoolExecutor, onlooker: psycopg.Connection[Any]) -> None:
        self._pool = pool
        self._onlooker = onlooker

    def start(self, hands: Hands, work: Callable[[Hands], T]) -> UnderWay[T]:
        """Have a session do something, beside the test."""
        return UnderWay(self._pool.submit(work, hands), hands.pid, self._onlooker)


@contextlib.contextmanager
def sessions(onlooker: psycopg.Connection[Any]) -> Iterator[Sessions]:
    """Sessions beside the body."""
    with ThreadPoolExecutor(thread_name_prefix="session") as pool:
        yield Sessions(pool, onlooker)


class Gate:
    """Where statements wait that were changed to do so: see `PASS_GATE`."""

    def __init__(self, onlooker: psycopg.Connection[Any]) -> None:
        self._onlooker = onlooker

    def shut(self) -> None:
        self._onlooker.execute("SELECT pg_advisory_lock(%s)", [GATE])

    def open(self) -> None:
        self._onlooker.execute("SELECT pg_advisory_unlock_all()")

    @contextlib.contextmanager
    def in_front(self, name: str, change: tuple[str, str], start: Callable[[], UnderWay[T]]) -> Iterator[UnderWay[T]]:
        """What `start` starts stands at the gate during the body, in the middle of its statement of this name."""
        self.shut()
        try:
            with mutated(name, change):
                under_way = start()
                assert under_way.waits(), f"{name} did not come to the gate"
            yield under_way
        finally:
            self.open()


def eventually(fact: Callable[[], Any]) -> Any:
    """Wait until `fact()` is true; what it gave."""
    deadline = time.monotonic() + _DEADLINE
    while not (seen := fact()):
        assert time.monotonic() < deadline, "the fact did not come true"
        time.sleep(0.001)  # between two looks
    return seen
