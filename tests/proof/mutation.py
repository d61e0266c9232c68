"""Statements with a fault put in on purpose, and statements that stand still in the middle: for tests alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from millpond.store import statement
from millpond.store.statement import compose

GATE = 7_215
"""The number of the advisory lock at which a gated statement waits."""

PASS_GATE = f"(SELECT pg_advisory_xact_lock_shared({GATE})) IS NOT NULL"
"""A condition that is true, once the gate is open. Rows are looked for before, and locked or changed after it."""


@contextlib.contextmanager
def mutated(name: str, *changes: tuple[str, str]) -> Iterator[None]:
    """The statement of this name, with each first text replaced by the second one, while the body runs."""
    unchanged = statement.load  # which may be changed already
    text = unchanged(name)
    for old, new in changes:
        assert text.count(old) == 1, f"{name}.sql has {text.count(old)} times: {old}"
        text = text.replace(old, new)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statement, "load", lambda asked: text if asked == name else unchanged(asked))
        compose.cache_clear()
        yield
    compose.cache_clear()
