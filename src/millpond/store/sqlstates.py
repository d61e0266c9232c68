"""What an error of the database asks of the loop that met it: one table, by SQLSTATE, for all loops."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

import psycopg


class Reaction(Enum):
    """What to do about an error. Whatever it is, a loop waits a little longer each time, and never ends by it."""

    RETRY = "retry"
    """The statement did nothing, and the session is as good as before: try again on it."""
    RECONNECT = "reconnect"
    """The session is of no more use, or speaks for a server that is none: try again on another."""
    ISOLATE = "isolate"
    """Something in the batch is at fault, and would be again: split it, so that the rest is stored."""


REACTIONS: Final[Mapping[str, Reaction]] = {
    "08": Reaction.RECONNECT,  # connection exceptions
    "0A000": Reaction.RECONNECT,  # "cached plan must not change result type", after a migration
    "22": Reaction.ISOLATE,  # data that the column cannot hold
    "23": Reaction.ISOLATE,  # a constraint
    "25": Reaction.RECONNECT,  # transactions in the wrong state; 25006: a standby, or made read-only
    "26": Reaction.RECONNECT,  # a prepared statement that is not there: another session than it was made in
    "28": Reaction.RECONNECT,  # not let in
    "3D": Reaction.RECONNECT,  # the database is not there
    "40": Reaction.RETRY,  # serialization failures and deadlocks
    "40003": Reaction.RECONNECT,  # "statement completion unknown"
    "42P05": Reaction.RECONNECT,  # a prepared statement that is there already: another session, too
    "53": Reaction.RETRY,  # out of disk or memory
    "53300": Reaction.RECONNECT,  # too many connections
    "54": Reaction.ISOLATE,  # larger than what the server can handle
    "57": Reaction.RETRY,  # cancelled: by a timeout, or by somebody
    "57P": Reaction.RECONNECT,  # shutdown, crash, start in progress, database dropped, idle for too long
    "P0": Reaction.ISOLATE,  # raised by a trigger of the user's
    "XX001": Reaction.ISOLATE,  # a page that cannot be read
    "XX002": Reaction.ISOLATE,
}
"""By SQLSTATE, or by its first characters: the longest match decides. What is not here is tried again: RETRY."""

_LONGEST: Final = 5


def reaction(error: psycopg.Error) -> Reaction:
    """What this error asks for. Those without an SQLSTATE come from the driver, which knows its connection is gone."""
    code = error.sqlstate
    if code is None:
        if isinstance(error, psycopg.DataError):
            return Reaction.ISOLATE  # refused before it was sent
        return Reaction.RETRY if isinstance(error, psycopg.ProgrammingError) else Reaction.RECONNECT
    found = (REACTIONS.get(code[:length]) for length in range(_LONGEST, 1, -1))
    return next((each for each in found if each is not None), Reaction.RETRY)


def said(error: BaseException) -> str:
    """An error's words for the log, in one line. Of the server's only the first: its details may quote a row."""
    if isinstance(error, psycopg.Error) and error.sqlstate:
        return f"{error.diag.message_primary or type(error).__name__} (SQLSTATE {error.sqlstate})"
    words = str(error).strip().splitlines()
    return words[0] if words else type(error).__name__
