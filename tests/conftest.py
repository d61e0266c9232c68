"""What all tests share: a database of their own, and a look at what they leave behind."""

from __future__ import annotations

import pytest

from millpond.testing.database import Database

pytest_plugins = ["millpond.testing.plugin"]


@pytest.fixture(autouse=True)
def nothing_left(millpond_nothing_left: None) -> None:
    """Every test fails that leaves tasks or threads running."""


@pytest.fixture
def database(millpond_database: Database) -> Database:
    """A migrated database for this test alone."""
    return millpond_database
