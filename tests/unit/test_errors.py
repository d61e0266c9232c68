"""Errors: one tree, told in errors.py; each survives a process boundary."""

from __future__ import annotations

import inspect
import pickle
import re
from typing import Any

import pytest

from millpond import errors
from millpond.errors import MillpondError

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, MillpondError) and kind.__module__ == errors.__name__
]

SAMPLES: dict[str, Any] = {
    "SettingsError": ("field", 3, "must be less."),
    "DuplicateExecutor": ("key", ["key", "other"]),
    "UnknownExecutor": ("key", ["other"]),
    "InvalidJob": ("tenant", "", "must not be empty."),
    "InvalidArgs": ("args.items[3].price", "is NaN."),
    "ArgsTooLarge": (2_000_000, 1_048_576),
    "SubmitError": ("tenant", "Not now."),
    "UnknownTenant": ("tenant",),
    "TenantQueueFull": ("tenant", 10),
    "PoolQueueFull": ("tenant", 10),
    "PoolStopping": ("tenant",),
    "TaskTimeout": (1.5,),
    "ClaimLost": (7,),
    "ProcessDied": (-9,),
}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_crosses_processes_whole(kind: type[MillpondError]) -> None:
    error = kind(*SAMPLES.get(kind.__name__, ("One sentence.",)))
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error) != ""
    assert vars(copy) == vars(error)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    told = re.findall(r"^[│├└─ ]*(\w+)(?:  |$)", errors.__doc__ or "", re.MULTILINE)
    assert set(told) >= {kind.__name__ for kind in KINDS}
