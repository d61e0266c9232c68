"""Which executor handles which key. A registry is a plain object that the application makes; nothing here is global."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_type_hints

from millpond.errors import DuplicateExecutor, InvalidExecutor, SettingsError, UnknownExecutor
from millpond.payload import checked_name, decoder, spec_of
from millpond.settings import checked_seconds

Isolation: TypeAlias = Literal["loop", "thread", "process"]
"""Where an executor runs: on the event loop, in a thread of the pool, in a process of its own."""

F = TypeVar("F")

_ISOLATIONS: Final = ("loop", "thread", "process")


@dataclass(frozen=True, slots=True)
class Executor:
    """What is registered for a key."""

    key: str
    call: Callable[[Any, Any], object]
    """The user's function: takes a JobContext and the decoded args."""
    decode: Callable[[str], object]
    """From the stored JSON to what the function's annotation asks for; raises InvalidArgs."""
    isolation: Isolation
    timeout: float | None
    """Seconds one attempt may take; None: the worker's task_timeout."""


class ExecutorRegistry:
    """Executors by key. Keys are what rows carry, so they outlive functions' and modules' names."""

    def __init__(self) -> None:
        self._executors: dict[str, Executor] = {}

    def register(
        self,
        key: str,
        executor: object,
        *,
        args: Any = None,
        isolation: Isolation | None = None,
        timeout: float | None = None,
    ) -> None:
        """Handle jobs of this key with an async function, a plain function, or an object with such an `execute`.

        Each takes two arguments: the JobContext, and the args, decoded to the annotation of that parameter or to
        `args` (a dataclass, pydantic model, msgspec Struct, TypedDict or dict; without either, what JSON gives).
        Async functions run on the event loop; plain ones in threads; isolation="process" runs a plain function in a
        process. `timeout` is in seconds, per attempt.

        Raises DuplicateExecutor, InvalidExecutor, InvalidJob (the key), SettingsError (timeout, isolation).
        """
        key = checked_name("executor", key)
        if key in self._executors:
            raise DuplicateExecutor(key, self._executors)
        if timeout is not None:
            timeout = checked_seconds("timeout", timeout, at_least=0.001)
        call = _callable(key, executor)
        self._executors[key] = Executor(
            key=key,
            call=call,
            decode=decoder(_annotation(key, call) if args is None else args),
            isolation=_isolation(key, call, isolation),
            timeout=timeout,
        )

    def executes(
        self, args: Any, *, isolation: Isolation | None = None, timeout: float | None = None
    ) -> Callable[[F], F]:
        """Decorate the executor of an args class that `@millpond.args` gave a key, or of a key itself."""

        def register(executor: F) -> F:
            if isinstance(args, str):
                self.register(args, executor, isolation=isolation, timeout=timeout)
            else:
                self.register(spec_of(args).executor, executor, args=args, isolation=isolation, timeout=timeout)
            return executor

        return register

    def get(self, key: str) -> Executor:
        """The executor of this key. Raises UnknownExecutor, which lists the keys there are."""
        try:
            return self._executors[key]
        except KeyError:
            raise UnknownExecutor(key, self._executors) from None

    def keys(self) -> frozenset[str]:
        """Every registered key."""
        return frozenset(self._executors)


def _callable(key: str, executor: object) -> Callable[[Any, Any], object]:
    call = getattr(executor, "execute", executor)
    if isinstance(executor, type) or not callable(call):
        raise InvalidExecutor(
            f"The executor for {key!r} is {executor!r}; give an async function, a plain function, or an object "
            "(not a class) with an execute method."
        )
    if inspect.isasyncgenfunction(call) or inspect.isgeneratorfunction(call):
        raise InvalidExecutor(f"The executor for {key!r} is a generator function, which nobody would iterate.")
    try:
        inspect.signature(call).bind(None, None)
    except TypeError as error:
        raise InvalidExecutor(
            f"The executor for {key!r} must take two arguments, the context and the args: {error}."
        ) from error
    except ValueError:
        pass  # some builtins have no signature to look at
    return call


def _is_async(call: Callable[..., object]) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004


def _isolation(key: str, call: Callable[..., object], asked: Isolation | None) -> Isolation:
    is_async = _is_async(call)
    if asked is None:
        return "loop" if is_async else "thread"
    if asked not in _ISOLATIONS:
        raise SettingsError("isolation", asked, f"must be one of {', '.join(_ISOLATIONS)}.")
    if is_async != (asked == "loop"):
        kind = "an async function, which runs on the loop" if is_async else "a plain function: thread or process"
        raise SettingsError("isolation", asked, f"does not fit: the executor for {key!r} is {kind}.")
    return asked


def _annotation(key: str, call: Callable[..., object]) -> Any:
    """The annotation of the second parameter, or Parameter.empty."""
    try:
        second = list(inspect.signature(call).parameters.values())[1]
    except (ValueError, IndexError):
        return inspect.Parameter.empty
    if second.annotation is inspect.Parameter.empty:
        return inspect.Parameter.empty
    function: Any = call
    while isinstance(function, functools.partial):
        function = function.func
    try:
        return get_type_hints(function if inspect.isroutine(function) else function.__call__)[second.name]
    except NameError as error:
        raise InvalidExecutor(
            f"The annotation of {second.name!r} of the executor for {key!r} cannot be resolved ({error}); "
            "import its type at run time, or pass args= to register."
        ) from error
