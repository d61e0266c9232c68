"""What a session of ours is like, and whether it still is."""

from __future__ import annotations

from millpond.store.statement import Statement

_SOONER = 0.9
"""The server gives a statement up a little before we do: then we know that it did nothing, and keep the session."""

_IDLE = 5.0
"""Seconds that a transaction of ours may wait for us: its locks are not held for a worker that hangs."""


_ANY_SCHEMA = ""
"""These statements name no table."""


def open_session(*, timeout: float, pid: int) -> Statement[bool]:
    """Set up the session of this server process; False, and nothing is set, when a pooler stands before it."""
    return Statement(
        "open_session",
        _ANY_SCHEMA,
        {"statement_timeout": _milliseconds(timeout * _SOONER), "idle_timeout": _milliseconds(_IDLE), "pid": pid},
        lambda rows: bool(rows),
    )


def listens(channel: str) -> Statement[bool]:
    """Whether this session is subscribed to the channel: the proof that a quiet listener is still one."""
    return Statement("find_subscription", _ANY_SCHEMA, {"channel": channel}, lambda rows: bool(rows))


def _milliseconds(seconds: float) -> str:
    return f"{max(1, int(seconds * 1_000))}ms"
