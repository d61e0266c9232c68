"""What became of one attempt: a value. Running code returns one of these; another room writes it."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Completed(msgspec.Struct, frozen=True):
    """The executor returned."""

    result: object = None


class Failed(msgspec.Struct, frozen=True):
    """The executor raised, or its attempt took too long (then `error` is a TaskTimeout)."""

    error: BaseException


class Cancelled(msgspec.Struct, frozen=True):
    """Somebody asked for this one job not to run (any more)."""

    reason: str


class Released(msgspec.Struct, frozen=True):
    """Handed back by a stopping pool: it never started, or was interrupted. The attempt does not count."""

    reason: str
    started: bool = False


Outcome: TypeAlias = Completed | Failed | Cancelled | Released
