"""Which value JSON has no word for, or Postgres cannot store, and where it is. Pure."""

from __future__ import annotations

import math
from typing import Final, NamedTuple


class Fault(NamedTuple):
    """What is wrong, and where."""

    path: str
    """From the outermost value: `.items[3].price`; empty for itself."""
    problem: str

    def below(self, step: str) -> Fault:
        """The same, seen from one level further out."""
        return Fault(step + self.path, self.problem)


def fault_of(value: object) -> Fault | None:
    """The first value at fault in dicts, lists and scalars, depth first; None when all is well."""
    match value:
        case str():
            problem = _stood_in(value) or fault_of_text(value)
            return None if problem is None else Fault("", problem)
        case float() if not math.isfinite(value):
            return Fault("", f"is {value}, for which JSON has no word; use None, or a text.")
        case dict():
            return _fault_of_items(value)
        case list() | tuple() | set() | frozenset():
            for index, item in enumerate(value):
                if (fault := fault_of(item)) is not None:
                    return fault.below(f"[{index}]")
    return None


def fault_of_text(text: str) -> str | None:
    """Why Postgres cannot store this text; None when it can."""
    if "\0" in text:
        return "contains NUL, which Postgres cannot store; remove it."
    if not text.isascii() and _has_lone_surrogate(text):
        return "contains a lone surrogate, which UTF-8 cannot hold; remove it."
    return None


def fault_of_name(value: object, longest: int) -> str | None:
    """Why this may not be the name of a tenant, a queue or an executor; None when it may. `longest` in characters."""
    if not isinstance(value, str):
        return f"must be a text, not {type(value).__qualname__}."
    if not 1 <= len(value) <= longest:
        return f"must have 1 to {longest} characters, not {len(value):,}."
    return fault_of_text(value)


def step_to(key: object) -> str:
    """One step of a path: `.name` or `['any other key']`."""
    if isinstance(key, str) and key.isidentifier() and len(key) <= _MAX_STEP:
        return f".{key}"
    shown = repr(key) if isinstance(key, str | int | float) else f"<{type(key).__qualname__}>"
    return f"[{shown}]" if len(shown) <= _MAX_STEP else f"[{shown[:_MAX_STEP]}…]"


def stand_in(kind: type) -> str:
    """What to put in the place of a value that JSON has no form for: a text that is a fault, and says which."""
    return f"{_STAND_IN}{kind.__qualname__}"


_STAND_IN: Final = "\0has no form\0"
"""No storable text begins so."""

_MAX_STEP: Final = 40
"""Longest key that a path shows whole."""


def _stood_in(text: str) -> str | None:
    if not text.startswith(_STAND_IN):
        return None
    return f"is of type {text.removeprefix(_STAND_IN)}, for which JSON has no form; convert it first."


def _fault_of_items(items: dict[object, object]) -> Fault | None:
    for key, item in items.items():
        if (problem := _fault_of_key(key)) is not None:
            return Fault(step_to(key), f"has a key that {problem}")
        if (fault := fault_of(item)) is not None:
            return fault.below(step_to(key))
    return None


def _fault_of_key(key: object) -> str | None:
    if isinstance(key, str):
        return fault_of_text(key)
    if isinstance(key, int | float) and not isinstance(key, bool):
        return None
    return f"is of type {type(key).__qualname__}; keys are text, or what has a plain text form."


def _has_lone_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False
