"""Whatever user code raises can be stored."""

from __future__ import annotations

import json
import traceback
from typing import Any

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


class Evasive(Exception):
    """Its attributes are as unreliable as they can be."""

    @property
    def __cause__(self) -> None:  # type: ignore[override]
        raise RuntimeError("never")


class Misleading(Exception):
    __cause__ = "not an exception"  # type: ignore[assignment]


def noted(error: BaseException, notes: Any) -> BaseException:
    error.__notes__ = notes
    return error


def chain_of(*errors: BaseException, suppress: bool = False) -> BaseException:
    """Each raised while the one before is handled."""
    first, *others = errors
    for error in others:
        try:
            raise first
        except BaseException as handled:
            if suppress:
                error.__context__ = handled
                error.__suppress_context__ = True
            first = raised(error)
    return first


def circle() -> BaseException:
    one, two = raised(ValueError("one")), raised(KeyError("two"))
    one.__cause__, two.__cause__ = two, one
    return one


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
    [
        Unprintable(),
        Unstoppable(),
        ValueError("a\0b\ud800"),
        ValueError("x" * 50_000_000),
        recursion(),
        SystemExit(3),
        Evasive("x"),
        Misleading("x"),
        circle(),
        chain_of(Unprintable(), Unstoppable(), ValueError("a\0\ud800"), recursion(), KeyError("x" * 50_000_000)),
        noted(ValueError("x"), ["a\0b\ud800", 3, "x" * 50_000_000]),
        noted(ValueError("x"), None),
        BaseExceptionGroup("many", [Unprintable(), Unstoppable(), *[ValueError("\0" * 100_000)] * 10_000]),
    ],
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


def shape(error: BaseException) -> list[str]:
    """The traceback, without its frames."""
    return [line for line in described(error)["traceback"].splitlines() if line and not line.startswith("  ")]


HEAD = "Traceback (most recent call last):"
CAUSE = "The above exception was the direct cause of the following exception:"
CONTEXT = "During handling of the above exception, another exception occurred:"


def test_an_error_alone_has_its_frames_alone() -> None:
    assert shape(raised(ValueError("x"))) == []
    assert "in raised" in described(raised(ValueError("x")))["traceback"]


def test_what_caused_an_error_comes_before_it() -> None:
    def lookup() -> None:
        raise KeyError("the cause")

    try:
        try:
            lookup()
        except KeyError as cause:
            raise ValueError("the error") from cause
    except ValueError as error:
        entry = described(error)
        printed = "".join(traceback.format_exception(error))
    assert (entry["type"], entry["message"]) == ("ValueError", "the error")
    assert entry["traceback"].index("in lookup") < entry["traceback"].index(CAUSE)
    without_columns = [line for line in printed.splitlines() if line.strip(" ^~") or not line]
    assert entry["traceback"].splitlines() == without_columns[:-1]


def test_what_was_being_handled_is_told_unless_it_is_suppressed() -> None:
    assert shape(chain_of(KeyError("one"), ValueError("two"))) == [HEAD, "KeyError: 'one'", CONTEXT, HEAD]
    assert shape(chain_of(KeyError("one"), ValueError("two"), suppress=True)) == []


def test_of_a_long_chain_the_last_links_are_told() -> None:
    told = shape(chain_of(*[ValueError(n) for n in range(50)]))
    assert [line for line in told if line.startswith("ValueError")] == [f"ValueError: {n}" for n in range(45, 49)]


def test_a_circle_of_causes_is_told_once() -> None:
    assert shape(circle()) == [HEAD, "KeyError: 'two'", CAUSE, HEAD]


def test_the_first_members_of_a_group_are_named() -> None:
    group = raised(ExceptionGroup("many", [KeyError("x"), *[ValueError(n) for n in range(9)]]))
    assert described(group)["traceback"].splitlines()[-6:] == [
        "  + KeyError: 'x'",
        *[f"  + ValueError: {n}" for n in range(4)],
        "  + … and 5 more",
    ]
    assert "  + KeyError: 'x'\n" in described(chain_of(group, ValueError("after")))["traceback"]


def test_notes_are_told_for_they_hold_the_traceback_of_a_child_process() -> None:
    error = ValueError("x")
    error.add_note("In the child process:\nhere")
    assert shape(raised(error)) == ["In the child process:", "here"]


def test_of_a_long_text_the_head_the_tail_and_the_loss_are_kept() -> None:
    text = storable("a" * 100 + "b" * 100, limit=20)
    assert text == "aaaaaaaaaa… (180 characters left out) …bbbbbbbbbb"


@given(st.text(st.characters(codec=None), max_size=200))
def test_any_text_is_storable(text: str) -> None:
    stored = storable(text)
    stored.encode()
    assert "\0" not in stored
