"""The twins say and take the same: what one client can do, the other can, by the same names."""

from __future__ import annotations

import inspect

import pytest

from millpond.client import AsyncClient, Client

TWINS = [(Client, AsyncClient)]
THROUGH_CONNECTIONS = {"enqueue", "enqueue_many"}


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("sync", "asynchronous"), TWINS)
def test_both_have_the_same_members(sync: type, asynchronous: type) -> None:
    assert public(sync) == public(asynchronous) >= THROUGH_CONNECTIONS


@pytest.mark.parametrize(("sync", "asynchronous"), TWINS)
def test_their_methods_differ_in_the_kind_of_connection_alone(sync: type, asynchronous: type) -> None:
    for name in public(sync):
        here, there = getattr(sync, name), getattr(asynchronous, name)
        if not inspect.isfunction(here):
            continue
        assert signature(here) == signature(there), name
        assert inspect.getdoc(here) == inspect.getdoc(there), name
        assert inspect.iscoroutinefunction(there) == (name in THROUGH_CONNECTIONS), name
        assert not inspect.iscoroutinefunction(here), name


def signature(method: object) -> inspect.Signature:
    """The signature, with one name for both kinds of connection."""
    found = inspect.signature(method)  # type: ignore[arg-type]
    return found.replace(
        parameters=[
            each.replace(annotation="Connection") if each.name == "conn" else each for each in found.parameters.values()
        ]
    )
