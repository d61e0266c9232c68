"""The table of faults names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROWS = re.findall(r"^\| (F\d+) \|.*\| (.*) \|$", (HERE / "FAULTS.md").read_text(), re.MULTILINE)
APPLY = {f"F{number}" for number in (*range(87, 98), *range(120, 127), *range(140, 144))}


def test_every_fault_that_applies_has_a_row() -> None:
    assert {fault for fault, _ in ROWS} == APPLY


@pytest.mark.parametrize(("fault", "tests"), ROWS)
def test_every_test_that_is_named_exists(fault: str, tests: str) -> None:
    named = re.findall(r"`([\w./]+)::(\w+)`", tests)
    assert named
    assert tests.count("`") == 2 * len(named), "every name is that of a test"
    for file, name in named:
        source = (HERE / file).read_text()
        assert re.search(rf"^((async )?def {name}\(|{name} = )", source, re.MULTILINE), f"{fault}: {file}::{name}"
