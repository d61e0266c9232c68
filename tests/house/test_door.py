"""`millpond` is the only door: complete, documented, and nothing else."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

import millpond


def test_what_the_door_imports_is_what_it_exports() -> None:
    imported = {
        name for name, value in vars(millpond).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert imported == set(millpond.__all__)


def test_exports_are_sorted() -> None:
    assert millpond.__all__ == sorted(millpond.__all__)


@pytest.mark.parametrize("name", [n for n in millpond.__all__ if inspect.isclass(getattr(millpond, n))])
def test_public_classes_and_their_methods_are_documented(name: str) -> None:
    kind = getattr(millpond, name)
    assert kind.__doc__, name
    for attribute, value in vars(kind).items():
        if not attribute.startswith("_") and inspect.isfunction(value):
            assert value.__doc__, f"{name}.{attribute}"
