"""What the proofs share: a judged database, and hands on it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final, Protocol

import psycopg
import pytest

from millpond.testing.database import Database
from tests.proof.fixtures import database, oracle
from tests.proof.hands import Hands
from tests.proof.oracle import SESSION
from tests.proof.spawning import Spawner

__all__ = ["database", "oracle"]


FIGURES: Final = pytest.StashKey[list[str]]()


def pytest_unconfigure(config: pytest.Config) -> None:
    """The figures of long storms are the last words."""
    for line in config.stash.get(FIGURES, []):
        print(line)


@pytest.fixture
def figures(pytestconfig: pytest.Config) -> list[str]:
    """Lines to end the whole run with."""
    return pytestconfig.stash.setdefault(FIGURES, [])


@pytest.fixture(scope="session")
def spawner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spawner]:
    """Forks processes from a warm one."""
    with Spawner(tmp_path_factory.mktemp("processes")) as spawner:
        yield spawner


class NewHands(Protocol):
    """Makes another worker's hands, on a connection of their own."""

    def __call__(self, **options: Any) -> Hands: ...


@pytest.fixture
def new_hands(database: Database) -> Iterator[NewHands]:
    """Hands on connections that are closed after the test; in autocommit mode unless told otherwise."""
    with contextlib.ExitStack() as stack:

        def make(**options: Any) -> Hands:
            options = {"autocommit": True, "application_name": SESSION} | options
            return Hands(database, stack.enter_context(contextlib.closing(database.connect(**options))))

        yield make


@pytest.fixture
def hands(new_hands: NewHands) -> Hands:
    """One worker's hands."""
    return new_hands()


@pytest.fixture
def onlooker(database: Database) -> Iterator[psycopg.Connection[Any]]:
    """A session that looks on, and meddles: what it changes is not judged."""
    with contextlib.closing(database.connect(autocommit=True)) as connection:
        yield connection
