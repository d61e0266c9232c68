"""Steps a coroutine inside a context of its own, without an asyncio task of its own."""

from __future__ import annotations

import threading
import types
from asyncio import CancelledError
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, Protocol


class Leaveable(Protocol):
    """Whoever a coroutine is stepped for."""

    @property
    def over(self) -> bool:
        """Whether nobody waits for it any more: then a cancellation leaves it where it stands."""


@types.coroutine
def stepped(
    coroutine: Coroutine[Any, Any, Any], context: Context, waits_for: Any, whose: Leaveable
) -> Generator[Any, Any, Any]:
    """Go on with a coroutine whose first step, already taken, waits for something. Returns or raises what it does.

    It runs as part of the asyncio task that awaits this: a cancellation of that task is raised inside the coroutine,
    and `asyncio.timeout` and task groups inside it work as ever.
    """
    run = context.run
    step: Callable[[Any], Any]
    while True:
        try:
            sent = yield waits_for
        except BaseException as error:
            if whose.over and isinstance(error, CancelledError):
                _keep_for_ever(coroutine)
                raise
            step, argument = coroutine.throw, error
        else:
            step, argument = coroutine.send, sent
        try:
            waits_for = run(step, argument)
        except StopIteration as end:
            return end.value


def _keep_for_ever(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Never let it be collected: that would throw into it once more, and code that refuses to end may never return.

    A daemon's frame outlives even the interpreter's own cleaning up.
    """
    threading.Thread(target=_hold, args=(coroutine,), name="left-behind-by-millpond", daemon=True).start()


def _hold(_coroutine: Coroutine[Any, Any, Any]) -> None:
    threading.Event().wait()
