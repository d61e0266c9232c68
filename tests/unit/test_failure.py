"""Whatever user code raises can be stored."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.failure import MAX_MESSAGE, MAX_TRACEBACK, described, storable


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("never")


class Unstoppable(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


def recursion() -> BaseException:
    def deeper() -> None:
        deeper()

    try:
        deeper()
    except RecursionError as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    "error",
    [Unprintable(), Unstoppable(), ValueError("a\0b\ud800"), ValueError("x" * 50_000_000), recursion(), SystemExit(3)],
    ids=lambda e: type(e).__name__,
)
def test_every_error_becomes_bounded_text_that_postgres_takes(error: BaseException) -> None:
    entry = described(raised(error))
    written = json.dumps(entry, ensure_ascii=False)
    assert "\0" not in written
    assert "\\u0000" not in written
    written.encode()
    assert len(entry["message"]) <= MAX_MESSAGE + 100
    assert len(entry["traceback"]) <= MAX_TRACEBACK + 100
    assert entry["type"] == type(error).__qualname__


def test_of_a_long_text_the_head_the_tail_and_the_loss_are_kept() -> None:
    text = storable("a" * 100 + "b" * 100, limit=20)
    assert text == "aaaaaaaaaa… (180 characters left out) …bbbbbbbbbb"


@given(st.text(st.characters(codec=None), max_size=200))
def test_any_text_is_storable(text: str) -> None:
    stored = storable(text)
    stored.encode()
    assert "\0" not in stored
