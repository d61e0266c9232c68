"""Fixtures for folders whose tests are all judged: imported by their conftest.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from millpond.testing.database import Database
from tests.proof.oracle import Oracle, proven


@pytest.fixture
def oracle(millpond_database: Database) -> Iterator[Oracle]:
    """Judges the test's database at the end."""
    with proven(millpond_database) as oracle:
        yield oracle


@pytest.fixture
def database(millpond_database: Database, oracle: Oracle) -> Database:
    """A migrated database for this test alone, of which all that moves is judged."""
    return millpond_database
