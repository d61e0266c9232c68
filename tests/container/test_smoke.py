"""The whole path on a PostgreSQL in a container: `MILLPOND_TEST_SERVER=container pytest -m container`."""

from __future__ import annotations

import os

import pytest
from psycopg import sql

from millpond import Client, ExecutorRegistry, Worker, WorkerSettings
from millpond.store import migrations
from millpond.testing.database import Database, Databases
from millpond.testing.serving import CONTAINER, SERVER

pytestmark = [
    pytest.mark.container,
    pytest.mark.skipif(os.environ.get(SERVER) != CONTAINER, reason=f"{SERVER} is not {CONTAINER}"),
]


def test_it_is_another_machine(database: Database) -> None:
    with database.connect() as connection:
        (address,) = connection.execute("SELECT host(inet_server_addr())").fetchone() or (None,)
    assert address not in (None, "127.0.0.1", "::1")


def test_migrations_run_up_and_down(millpond_databases: Databases) -> None:
    with millpond_databases.empty() as empty:
        migrations.upgrade(empty.dsn, 'We ird"x')
        assert not migrations.status(empty.dsn, 'We ird"x').pending
        migrations.downgrade(empty.dsn, 'We ird"x', steps=99)
        assert not migrations.status(empty.dsn, 'We ird"x').applied


async def test_jobs_are_enqueued_run_and_completed(database: Database) -> None:
    registry = ExecutorRegistry()
    greeted: list[str] = []

    async def greet(context: object, args: dict[str, str]) -> None:
        greeted.append(args["name"])

    registry.register("greet", greet)
    with database.connect() as connection:
        client = Client(schema=database.schema)
        client.enqueue(connection, {"name": "Ada"}, tenant="one", executor="greet")
        client.enqueue(connection, {"name": "Grace"}, tenant="other", executor="greet")

    await Worker(database.dsn, registry, settings=WorkerSettings(schema=database.schema, exit_when_done=True)).run()

    assert sorted(greeted) == ["Ada", "Grace"]
    with database.connect() as connection:
        states = connection.execute(sql.SQL("SELECT state FROM {}.jobs").format(sql.Identifier(database.schema)))
        assert states.fetchall() == [("completed",), ("completed",)]
