"""Registering executors, and finding them."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

import millpond
from millpond.errors import DuplicateExecutor, InvalidExecutor, InvalidJob, SettingsError, UnknownExecutor
from millpond.registry import ExecutorRegistry


@millpond.args("typed")
@dataclass
class Typed:
    n: int


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
def test_what_cannot_be_executed_is_refused(bad: object) -> None:
    registry = ExecutorRegistry()
    with pytest.raises(InvalidExecutor):
        registry.register("key", bad)
    assert registry.keys() == frozenset()


@pytest.mark.parametrize("key", ["", "x" * 256, "a\0b", None])
def test_keys_are_checked(key: Any) -> None:
    with pytest.raises(InvalidJob, match="executor"):
        ExecutorRegistry().register(key, async_executor)


def test_a_class_without_a_key_is_refused() -> None:
    class Bare: ...

    with pytest.raises(InvalidJob, match=r"millpond\.args"):
        ExecutorRegistry().executes(Bare)(async_executor)


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
