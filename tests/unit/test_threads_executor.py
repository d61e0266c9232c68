"""The resident threads lose no call, whatever the moment it comes at."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import pytest

from millpond.executors.mailbox import Mailbox
from millpond.executors.threads import Threads, in_thread

PATIENCE = 20.0


class Directly:
    """A mailbox without a loop: calls where it is posted."""

    def post(self, callback: object, *args: object) -> None:
        callback(*args)  # type: ignore[operator]


@contextmanager
def switching_all_the_time() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_no_call_is_lost_while_threads_go_to_sleep_and_wake(most: int) -> None:
    ended: SimpleQueue[int] = SimpleQueue()
    threads: Threads[int] = Threads(most, Directly(), lambda item, value, error: ended.put(item))  # type: ignore[arg-type]
    with switching_all_the_time():
        for number in range(3_000):
            for each in range(number % 3 + 1):
                threads.submit(lambda item: item, number * 3 + each)
            for _ in range(number % 3 + 1):
                ended.get(timeout=PATIENCE)
    threads.close()


def test_a_call_that_comes_just_as_the_last_thread_goes_to_sleep_is_not_lost() -> None:
    ended: SimpleQueue[str] = SimpleQueue()
    threads: Threads[str] = Threads(1, Directly(), lambda item, value, error: ended.put(item))  # type: ignore[arg-type]

    class JustThen(deque[Any]):
        """Has the next call submitted when a thread has found nothing, and before it sleeps."""

        came = False

        def popleft(self) -> Any:
            if not self and not self.came:
                self.came = True
                threads.submit(lambda _: None, "just then")
                raise IndexError
            return super().popleft()

    threads._calls = JustThen()
    threads.submit(lambda _: None, "first")
    assert [ended.get(timeout=PATIENCE) for _ in range(2)] == ["first", "just then"]
    threads.close()


def test_after_close_nothing_more_is_started() -> None:
    entered, gate = threading.Event(), threading.Event()
    ended: SimpleQueue[str] = SimpleQueue()
    threads: Threads[str] = Threads(1, Directly(), lambda item, value, error: ended.put(item))  # type: ignore[arg-type]

    def waits(_: str) -> None:
        entered.set()
        gate.wait(PATIENCE)

    threads.submit(waits, "first")
    assert entered.wait(PATIENCE)
    threads.submit(lambda _: None, "second")
    threads.close()
    threads.submit(lambda _: None, "third")
    gate.set()
    assert ended.get(timeout=PATIENCE) == "first"
    assert ended.empty()


def test_when_the_system_gives_no_threads_calls_fail_and_later_ones_work(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: SimpleQueue[tuple[str, BaseException | None]] = SimpleQueue()
    threads: Threads[str] = Threads(2, Directly(), lambda item, value, error: ended.put((item, error)))  # type: ignore[arg-type]

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        threads.submit(lambda _: None, "first")
        item, error = ended.get(timeout=PATIENCE)
        assert item == "first"
        assert isinstance(error, RuntimeError)
    threads.submit(lambda _: None, "second")
    assert ended.get(timeout=PATIENCE) == ("second", None)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for number in range(10):
            threads.submit(lambda _: None, str(number))
        assert {ended.get(timeout=PATIENCE) for _ in range(10)} == {(str(number), None) for number in range(10)}
    threads.close()


async def test_letters_from_many_threads_are_delivered_each_once_and_in_order() -> None:
    heard: list[tuple[int, int]] = []
    done = asyncio.Event()

    def hear(sender: int, number: int) -> None:
        heard.append((sender, number))
        if len(heard) == 4_000:
            done.set()

    mailbox = Mailbox(asyncio.get_running_loop())

    def send(sender: int) -> None:
        for number in range(1_000):
            mailbox.post(hear, sender, number)

    with switching_all_the_time():
        threads = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
        for thread in threads:
            thread.start()
        async with asyncio.timeout(PATIENCE):
            await done.wait()
        for thread in threads:
            thread.join()
    for sender in range(4):
        assert [number for who, number in heard if who == sender] == list(range(1_000))


async def test_a_call_in_a_thread_brings_what_it_returns_or_raises() -> None:
    def stops() -> None:
        raise StopIteration("in a thread")

    assert await in_thread(lambda: 42) == 42
    with pytest.raises(RuntimeError, match="StopIteration"):
        await in_thread(stops)
    with pytest.raises(SystemExit):
        await in_thread(sys.exit)


async def test_a_call_that_nobody_waits_for_any_more_ends_quietly() -> None:
    gate = threading.Event()
    call = asyncio.ensure_future(in_thread(lambda: gate.wait(PATIENCE)))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    gate.set()
