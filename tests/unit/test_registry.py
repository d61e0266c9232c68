"""Registering executors, and finding them."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Optional, Protocol, TypedDict, TypeVar

import pytest

import millpond
from millpond.errors import DuplicateExecutor, InvalidExecutor, InvalidJob, SettingsError, UnknownExecutor
from millpond.registry import ExecutorRegistry


@millpond.args("typed")
@dataclass
class Typed:
    n: int


@millpond.args("more")
@dataclass
class More(Typed):
    m: int = 0


class Titled(TypedDict):
    n: int


class Numbered(Protocol):
    n: int


T = TypeVar("T")


@dataclass
class Boxed(Generic[T]):
    n: T


async def async_executor(ctx: Any, args: Any) -> None: ...


def plain_executor(ctx: Any, args: Typed) -> None: ...


def test_a_key_resolves_to_what_was_registered() -> None:
    registry = ExecutorRegistry()
    registry.register("a", async_executor, timeout=3)
    registry.register("p", plain_executor)
    registry.register("q", plain_executor, isolation="process")
    registry.register("partial", functools.partial(async_executor))
    assert registry.keys() == {"a", "p", "q", "partial"}
    assert (registry.get("a").isolation, registry.get("a").timeout) == ("loop", 3.0)
    assert registry.get("p").isolation == "thread"
    assert registry.get("q").isolation == "process"
    assert registry.get("partial").isolation == "loop"


def test_args_are_decoded_from_the_annotation_the_class_or_not_at_all() -> None:
    registry = ExecutorRegistry()
    registry.register("annotated", plain_executor)
    registry.register("given", async_executor, args=Typed)
    registry.register("plain", async_executor)
    registry.register("unannotated", lambda ctx, args: None)
    assert registry.get("unannotated").decode('{"n": 1}') == {"n": 1}
    assert registry.get("annotated").decode('{"n": 1}') == Typed(1)
    assert registry.get("given").decode('{"n": 1}') == Typed(1)
    assert registry.get("plain").decode('{"n": 1}') == {"n": 1}


def test_the_decorator_takes_a_class_or_a_key_and_gives_the_function_back() -> None:
    registry = ExecutorRegistry()
    assert registry.executes(Typed)(async_executor) is async_executor
    registry.executes("by key")(plain_executor)
    assert registry.keys() == {"typed", "by key"}


def test_duplicate_and_unknown_keys_list_what_exists() -> None:
    registry = ExecutorRegistry()
    registry.register("one", async_executor)
    registry.register("two", async_executor)
    with pytest.raises(DuplicateExecutor, match=r"'one'.*'one', 'two'"):
        registry.register("one", plain_executor)
    with pytest.raises(UnknownExecutor, match=r"'three'.*'one', 'two'"):
        registry.get("three")
    with pytest.raises(UnknownExecutor, match="No executor is registered"):
        ExecutorRegistry().get("x")
    assert registry.get("one").call is async_executor


class Class:
    async def execute(self, ctx: Any, args: Any) -> None: ...


async def generator(ctx: Any, args: Any) -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize("bad", [None, 3, Class, generator, lambda: None, lambda ctx: None, lambda a, b, c: None])
def test_what_cannot_be_executed_is_refused(bad: Any) -> None:
    registry = ExecutorRegistry()
    with pytest.raises(InvalidExecutor):
        registry.register("key", bad)
    assert registry.keys() == frozenset()


@pytest.mark.parametrize("key", ["", "x" * 256, "a\0b", None])
def test_keys_are_checked(key: Any) -> None:
    with pytest.raises(InvalidJob, match="executor"):
        ExecutorRegistry().register(key, async_executor)


class Bare: ...


@pytest.mark.parametrize("args", [Bare, 123, None, Typed(1), Boxed[int]])
def test_what_has_no_key_is_refused_where_it_is_decorated(args: Any) -> None:
    remedy = r'^executor = .*: has no executor key: decorate the class .*, or pass the key itself: executes\("key"\)\.$'
    with pytest.raises(InvalidJob, match=remedy):
        ExecutorRegistry().executes(args)


# ── annotations ──────────────────────────────────────────────────────────────────────────────────────────────────────


def annotated(args: Any, ctx: Any = Any) -> Any:
    """A function with these annotations."""

    def executor(ctx: Any, args: Any) -> None: ...

    executor.__annotations__ = {"ctx": ctx, "args": args, "return": "Nowhere"}
    return executor


class Wrapping:
    def execute(self, ctx: Nowhere, args: Typed) -> None: ...  # type: ignore[name-defined] # noqa: F821


def test_only_the_annotation_of_the_args_has_to_exist_at_run_time() -> None:
    registry = ExecutorRegistry()
    registry.register("function", annotated("Typed", ctx="Nowhere"))
    registry.register("object", Wrapping())
    registry.register("within", annotated(list["Typed"], ctx="Nowhere"))
    registry.register("partial", functools.partial(annotated("Typed", ctx="Nowhere")))
    assert registry.get("function").decode('{"n": 1}') == Typed(1)
    assert registry.get("object").decode('{"n": 1}') == Typed(1)
    assert registry.get("within").decode('[{"n": 1}]') == [Typed(1)]
    assert registry.get("partial").decode('{"n": 1}') == Typed(1)


@pytest.mark.parametrize("args", ["Nowhere", "millpond.Nowhere", "not python", "Typed[int]", "1 / 0"])
def test_an_annotation_that_cannot_be_resolved_is_refused(args: Any) -> None:
    registry = ExecutorRegistry()
    with pytest.raises(InvalidExecutor, match=r"'args' of the executor for 'key' cannot be .*pass args=") as caught:
        registry.register("key", annotated(args))
    assert caught.value.__cause__ is not None
    registry.register("key", annotated(args), args=Typed)
    assert registry.get("key").decode('{"n": 1}') == Typed(1)


@pytest.mark.parametrize(
    ("annotation", "args"),
    [
        (Any, Typed),
        (object, Typed),
        (Typed, Typed),
        (Typed, More),
        (Typed | None, Typed),
        (Optional[Typed], More),  # noqa: UP045 - another class than the line above
        (Typed | int, More),
        (Annotated[Typed, "said"], Typed),
        (Numbered, Typed),
        (T, Typed),
        (Boxed, Boxed[int]),
        (Boxed[int], Boxed[int]),
        (dict[str, Any], Titled),
        (Mapping[str, Any], Titled),
        (Titled, dict[str, int]),
        (Typed, Annotated[Typed, "said"]),
        (Typed, Typed | None),
    ],
)
def test_annotations_that_take_the_args_they_are_registered_for(annotation: Any, args: Any) -> None:
    ExecutorRegistry().register("key", annotated(annotation), args=args)


@pytest.mark.parametrize(
    ("annotation", "args"),
    [
        (Bare, Typed),
        (More, Typed),
        (int, Typed),
        (Bare | None, Typed),
        (dict[str, Any], Typed),
        (Titled, Typed),
        (Boxed[int], Typed),
        (Typed, Titled),
    ],
)
def test_an_annotation_of_another_class_is_refused(annotation: Any, args: Any) -> None:
    registry = ExecutorRegistry()
    with pytest.raises(InvalidExecutor, match=r"'key' is registered for args of .*, but annotates them .*") as caught:
        registry.register("key", annotated(annotation), args=args)
    assert repr(args) in str(caught.value)
    assert repr(annotation) in str(caught.value)
    assert registry.keys() == frozenset()
    with pytest.raises(InvalidExecutor, match=r"Typed.*but annotates them .*Bare"):
        registry.executes(Typed)(annotated(Bare))


# ── isolation ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Plain:
    def execute(self, ctx: Any, args: Any) -> None: ...

    def __call__(self, ctx: Any, args: Any) -> None: ...

    def another(self, ctx: Any, args: Any) -> None: ...

    @classmethod
    def of_the_class(cls, ctx: Any, args: Any) -> None: ...


def logged(function: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(function)
    def wrapper(*args: Any) -> None:
        function(*args)

    return wrapper


@logged
def wrapped(ctx: Any, args: Any) -> None: ...


def local() -> list[Any]:
    """What no other process finds by its name."""

    class Local:
        def execute(self, ctx: Any, args: Any) -> None: ...

        def __call__(self, ctx: Any, args: Any) -> None: ...

    def function(ctx: Any, args: Any) -> None: ...

    return [function, Local(), Local().__call__, functools.partial(function), lambda ctx, args: None]


def test_what_a_child_process_finds_by_its_name_may_run_there() -> None:
    registry = ExecutorRegistry()
    plain = Plain()
    found: list[Any] = [plain_executor, wrapped, plain, plain.__call__, plain.another, Plain.of_the_class]
    for number, each in enumerate([*found, functools.partial(plain_executor), functools.partial(plain.another)]):
        registry.register(str(number), each, isolation="process")
        assert registry.get(str(number)).isolation == "process"


@pytest.mark.parametrize("executor", local())
def test_what_no_child_process_would_find_is_refused(executor: Any) -> None:
    registry = ExecutorRegistry()
    with pytest.raises(InvalidExecutor, match=r"'key' is .*(<lambda>|<locals>).*at the top of a module"):
        registry.register("key", executor, isolation="process")
    registry.register("key", executor)
    assert registry.get("key").isolation == "thread"


@pytest.mark.parametrize(
    ("executor", "isolation"), [(async_executor, "thread"), (plain_executor, "loop"), (plain_executor, "fiber")]
)
def test_an_isolation_that_does_not_fit_is_refused(executor: Any, isolation: Any) -> None:
    with pytest.raises(SettingsError, match="isolation"):
        ExecutorRegistry().register("key", executor, isolation=isolation)


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), "1"])
def test_timeouts_are_checked(timeout: Any) -> None:
    with pytest.raises(SettingsError, match="timeout"):
        ExecutorRegistry().register("key", async_executor, timeout=timeout)
