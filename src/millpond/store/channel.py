"""Where workers are woken: a NOTIFY channel for each schema, so that two installations in one database stay apart."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b


@cache
def channel(schema: str) -> str:
    """The channel of this schema: constant in length, whatever the name. Payloads are empty: a wake-up is a hint."""
    return f"millpond_{blake2b(schema.encode(), digest_size=12).hexdigest()}"
