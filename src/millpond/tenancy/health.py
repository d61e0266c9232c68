"""What can be said of a pool at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Room:
    """How much more the pool can take. Tasks beyond it are refused."""

    slots: int
    """Tasks, over all tenants."""
    tenants: Mapping[str, int]
    """Tasks of each tenant that the pool holds something of."""
    default: int
    """Tasks of any other tenant."""
