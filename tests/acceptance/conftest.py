"""Every test here is judged by the log of what moved."""

from __future__ import annotations

from tests.proof.fixtures import database, oracle

__all__ = ["database", "oracle"]
