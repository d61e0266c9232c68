"""What the documents say is true: README's code runs, ARCHITECTURE's tests exist."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import pytest

from millpond import Worker, WorkerSettings
from millpond.testing.database import Database

ROOT = Path(__file__).parents[2]


def blocks(document: str) -> list[str]:
    """The Python blocks of a document, each where it stands, so that errors show README's lines."""
    text = (ROOT / document).read_text("utf-8")
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return ["\n" * text.count("\n", 0, block.start(1)) + block[1] for block in found]


def is_program(block: str) -> bool:
    """Whether a block is a whole program, to be run by itself."""
    return "asyncio.run(" in block or "__main__" in block


@pytest.fixture
def module() -> Iterator[ModuleType]:
    """A module for the code to live in: annotations are looked up there."""
    made = ModuleType("readme")
    sys.modules["readme"] = made
    yield made
    del sys.modules["readme"]


async def run(code: str, document: str, module: ModuleType) -> None:
    """Run a block; `await`, `async with` and `async for` may stand at its top."""
    compiled: CodeType = compile(code, document, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(compiled, vars(module))
    if inspect.isawaitable(result):
        await result


async def test_the_readme_runs(database: Database, module: ModuleType) -> None:
    with database.connect() as connection:
        connection.execute("CREATE TABLE orders (tenant text)")
        connection.execute("CREATE TABLE charges (tenant text, amount integer)")
    vars(module).update(dsn=database.dsn, url=database.url("psycopg"))
    code = [block for block in blocks("README.md") if not is_program(block)]
    assert len(code) >= 6
    for block in code:
        await run(block, "README.md", module)
    await work_off(database, vars(module))


@pytest.mark.parametrize("program", [block for block in blocks("README.md") if is_program(block)])
def test_the_programs_of_the_readme_run(program: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(program, "utf-8")
    result = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout


async def work_off(database: Database, names: dict[str, Any]) -> None:
    """The jobs that README enqueues, and one for its `charge`, run to their end."""
    with database.connect() as connection:
        names["client"].enqueue(connection, {"amount": 3}, tenant="acme", executor="charge")
    await Worker(database.dsn, names["registry"], settings=WorkerSettings(exit_when_done=True)).run()
    with database.connect() as connection:
        states = connection.execute("SELECT executor, state, count(*) FROM millpond.jobs GROUP BY 1, 2").fetchall()
        assert sorted(states) == [("charge", "completed", 1), ("sync_orders", "completed", 1_001)]
        assert connection.execute("SELECT tenant, amount FROM charges").fetchall() == [("acme", 3)]
    names["engine"].dispose()


def test_the_tests_that_architecture_promises_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    named = re.findall(r"`(tests/[\w/]+(?:\.py)?/?)(?:::(\w+))?`", text)
    assert len(named) >= 10
    for path, test in named:
        assert (ROOT / path).exists(), path
        if test:
            assert f"def {test}(" in (ROOT / path).read_text("utf-8"), f"{path}::{test}"


def test_the_rooms_that_architecture_names_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    floors = text.split("## The rooms")[1].split("Beside the package")[0]
    named = {name.removesuffix("/").removesuffix(".py") for name in re.findall(r"`([a-z_]+(?:\.py|/)?)`", floors)}
    package = ROOT / "src" / "millpond"
    there = {path.stem for path in package.iterdir() if not path.name.startswith("_") and path.name != "py.typed"}
    assert there <= named, f"not in ARCHITECTURE's table: {there - named}"
