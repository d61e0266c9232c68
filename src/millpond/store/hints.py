"""What a message tells people to type."""

from __future__ import annotations

from shlex import quote

from millpond.settings import DEFAULT_SCHEMA


def migrate_command(schema: str) -> str:
    """What brings this schema up to date."""
    return "`millpond migrate up`" if schema == DEFAULT_SCHEMA else f"`millpond migrate up --schema {quote(schema)}`"
