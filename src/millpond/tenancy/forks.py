"""A forked child inherits a pool's memory, but neither its loop nor its threads: there, the pool must not be used."""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


class Poisonable(Protocol):
    """What a fork makes unusable."""

    def after_fork(self) -> None:
        """Called in the child."""


_ALL: Final[WeakSet[Poisonable]] = WeakSet()  # of the process, as forking is


def poison(thing: Poisonable) -> None:
    """Have it told when it wakes up in a forked child."""
    _ALL.add(thing)


def _after_fork() -> None:
    for thing in list(_ALL):
        thing.after_fork()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork either
    os.register_at_fork(after_in_child=_after_fork)
