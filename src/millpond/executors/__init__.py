"""Where work runs: on the event loop, in our own threads, in our own child processes. Knows nothing of tenants."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Literal, TypeAlias

Isolation: TypeAlias = Literal["loop", "thread", "process"]
"""Where a function runs: on the event loop, in a thread of the pool, or in a child process of the pool."""


def isolation_of(run: Callable[..., object]) -> Isolation:
    """Loop when calling `run` gives a coroutine, as far as can be seen from outside; else thread."""
    while isinstance(run, functools.partial):
        run = run.func
    code = getattr(run, "__code__", None)
    if code is not None and code.co_flags & inspect.CO_COROUTINE:  # at a tenth of what the next line costs
        return "loop"
    is_async = inspect.iscoroutinefunction(run) or inspect.iscoroutinefunction(getattr(run, "__call__", None))  # noqa: B004
    return "loop" if is_async else "thread"
