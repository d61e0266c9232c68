"""What type checkers say of executors: mypy must accept each line, and miss the error where one is ignored."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import assert_type

from millpond import ExecutorRegistry, JobContext, args

registry = ExecutorRegistry()


@args("typed")
@dataclass
class Typed:
    n: int


@registry.executes(Typed)
async def asynchronous(ctx: JobContext, args: Typed) -> str:
    return args.n * "x"


@registry.executes("by key", isolation="process")
def plain(ctx: JobContext, args: Typed, *, dry: bool = False) -> int:
    return args.n


class Executes:
    async def execute(self, ctx: JobContext, args: Typed) -> None: ...


class Callable:
    def __call__(self, ctx: JobContext, args: Typed) -> None: ...


class Neither:
    def run(self, ctx: JobContext, args: Typed) -> None: ...


class TooFew:
    def execute(self, ctx: JobContext) -> None: ...


def accepted(ctx: JobContext) -> None:
    assert_type(plain(ctx, Typed(1), dry=True), int)  # the decorator keeps the function
    assert_type(registry.executes("object")(Executes()), Executes)
    registry.register("object", Executes())
    registry.register("callable", Callable())
    registry.register("partial", functools.partial(plain, dry=True))
    registry.register("lambda", lambda ctx, args: None)


async def accepted_async(ctx: JobContext) -> None:
    assert_type(await asynchronous(ctx, Typed(1)), str)


@registry.executes("too few")  # type: ignore[type-var]
def too_few(ctx: str) -> int:
    return 1


def refused() -> None:
    registry.register("too few", too_few)  # type: ignore[arg-type]
    registry.register("too few", TooFew())  # type: ignore[arg-type]
    registry.register("neither", Neither())  # type: ignore[arg-type]
    registry.register("nothing", None)  # type: ignore[arg-type]
    registry.executes("neither")(Neither())  # type: ignore[type-var]
    registry.executes("fiber", isolation="fiber")(plain)  # type: ignore[arg-type]
