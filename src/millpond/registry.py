"""Which executor handles which key. A registry is a plain object that the application makes; nothing here is global."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from inspect import Parameter
from types import UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from millpond.errors import DuplicateExecutor, InvalidExecutor, InvalidJob, SettingsError, UnknownExecutor
from millpond.executors import Isolation, isolation_of
from millpond.payload import checked_name, decoder, find_spec
from millpond.settings import checked_seconds


class Executes(Protocol):
    """An object whose `execute` takes the JobContext and the decoded args."""

    @property
    def execute(self) -> Callable[[Any, Any], object]: ...


Executable: TypeAlias = Callable[[Any, Any], object] | Executes
"""What may be registered: a function of two arguments, or an object with one."""

F = TypeVar("F", bound=Executable)

_ISOLATIONS: Final = get_args(Isolation)


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
        executor: Executable,
        *,
        args: Any = None,
        isolation: Isolation | None = None,
        timeout: float | None = None,
    ) -> None:
        """Handle jobs of this key with an async function, a plain function, or an object with such an `execute`.

        Each takes two arguments: the JobContext, and the args, decoded to the annotation of that parameter or to
        `args` (a dataclass, pydantic model, msgspec Struct, TypedDict or dict; without either, what JSON gives).
        Async functions run on the event loop; plain ones in threads; isolation="process" runs a plain function in a
        child process, where it must be found by its name: at the top of a module. `timeout` is in seconds, per attempt.

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
            decode=decoder(_args_type(key, call, args)),
            isolation=_isolation(key, call, isolation),
            timeout=timeout,
        )

    def executes(
        self, args: Any, *, isolation: Isolation | None = None, timeout: float | None = None
    ) -> Callable[[F], F]:
        """Decorate the executor of an args class that `@millpond.args` gave a key, or of a key itself.

        Raises InvalidJob when there is no key, and what `register` raises.
        """
        key = _key_of(args)
        kind = None if isinstance(args, str) else args

        def register(executor: F) -> F:
            self.register(key, executor, args=kind, isolation=isolation, timeout=timeout)
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


def _key_of(args: object) -> str:
    if isinstance(args, str):
        return args
    if isinstance(args, type) and (spec := find_spec(args)) is not None:
        return spec.executor
    raise InvalidJob(
        "executor",
        args,
        'has no executor key: decorate the class with @millpond.args, or pass the key itself: executes("key").',
    )


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


# ── where it runs ────────────────────────────────────────────────────────────────────────────────────────────────────


def _isolation(key: str, call: Callable[..., object], asked: Isolation | None) -> Isolation:
    natural = isolation_of(call)
    if asked is None:
        return natural
    if asked not in _ISOLATIONS:
        raise SettingsError("isolation", asked, f"must be one of {', '.join(_ISOLATIONS)}.")
    if (natural == "loop") != (asked == "loop"):
        kind = (
            "an async function, which runs on the loop" if natural == "loop" else "a plain function: thread or process"
        )
        raise SettingsError("isolation", asked, f"does not fit: the executor for {key!r} is {kind}.")
    if asked == "process" and _is_local(named := _by_name(call)):
        raise InvalidExecutor(
            f"The executor for {key!r} is {named!r}, which a child process cannot find by its name: "
            'for isolation="process", define it with def or class at the top of a module.'
        )
    return asked


def _by_name(call: Any) -> str:
    """The name that pickle will write for what is called. Whether it leads there cannot be tried yet: the name of a
    function that is being decorated is not bound."""
    while isinstance(call, functools.partial):
        call = call.func
    owner = call.__self__ if inspect.ismethod(call) else call
    named = owner if isinstance(owner, type) or inspect.isroutine(owner) else type(owner)
    return str(named.__qualname__)


def _is_local(name: str) -> bool:
    return "<lambda>" in name or "<locals>" in name


# ── what its args are ────────────────────────────────────────────────────────────────────────────────────────────────


def _args_type(key: str, call: Callable[..., object], asked: Any) -> Any:
    """What to decode args to: `asked`, else the annotation of the second parameter, else Parameter.empty."""
    if asked is None:
        return _annotation(key, call)
    try:
        annotation = _annotation(key, call)
    except InvalidExecutor:
        return asked  # only type checkers can read the annotation, and they compare it themselves
    if not _takes(annotation, asked):
        raise InvalidExecutor(
            f"The executor for {key!r} is registered for args of {asked!r}, but annotates them {annotation!r}; "
            "let both say the same."
        )
    return asked


def _annotation(key: str, call: Callable[..., object]) -> Any:
    """The annotation of the second parameter, or Parameter.empty. The others may be there for type checkers alone."""
    try:
        second = list(inspect.signature(call).parameters.values())[1]
    except (ValueError, IndexError):
        return Parameter.empty
    if second.annotation is Parameter.empty:
        return Parameter.empty

    def alone() -> None: ...

    alone.__annotations__ = {second.name: second.annotation}
    try:
        return get_type_hints(alone, _globals(call))[second.name]
    except Exception as error:  # an annotation is an expression: it may raise anything
        raise InvalidExecutor(
            f"The annotation of {second.name!r} of the executor for {key!r} cannot be resolved "
            f"({type(error).__name__}: {error}); import its type at run time, or pass args= to register."
        ) from error


def _globals(call: Any) -> dict[str, Any]:
    """The names that the annotations of what is called were written among."""
    while isinstance(call, functools.partial):
        call = call.func
    function = inspect.unwrap(call if inspect.isroutine(call) else call.__call__)
    return getattr(function, "__globals__", {})


def _takes(annotation: Any, args: Any) -> bool:
    """Whether a parameter annotated so takes these args, as far as their classes tell."""
    if annotation in (Parameter.empty, Any, args):
        return True
    if get_origin(annotation) in _UNIONS:
        return any(_takes(each, args) for each in get_args(annotation))
    wanted, given = _class_of(annotation), _class_of(args)
    if wanted is None or given is None:
        return True
    try:
        return issubclass(given, wanted)
    except TypeError:  # a protocol, for one, is not for asking
        return True


def _class_of(annotation: Any) -> type | None:
    """The class that values of this type have; None for a type variable and the like."""
    kind = get_origin(annotation) or annotation
    if is_typeddict(kind):
        return dict
    return kind if isinstance(kind, type) and kind not in _NO_CLASSES else None


_UNIONS: Final = (Union, UnionType)
_NO_CLASSES: Final = (Annotated, UnionType)
"""Classes that say how an annotation was written, and nothing of its values."""
