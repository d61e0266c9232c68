"""What a worker asks before it starts: whether this code can work on this schema."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql

from millpond.errors import SchemaMismatch
from millpond.store.database import check, check_async
from millpond.testing.database import Database, Databases


async def test_a_migrated_schema_is_fine(database: Database) -> None:
    with database.connect() as connection:
        check(connection, database.schema)
    async with await database.connect_async() as connection:
        await check_async(connection, database.schema)


@pytest.mark.parametrize("schema", ["nobody's", "millpond"])
async def test_a_schema_that_is_not_migrated(millpond_databases: Databases, schema: str) -> None:
    with millpond_databases.empty() as empty:
        with (
            empty.connect() as connection,
            pytest.raises(SchemaMismatch, match="not migrated: run `millpond migrate up"),
        ):
            check(connection, schema)
        async with await empty.connect_async() as connection:
            with pytest.raises(SchemaMismatch, match="not migrated: run `millpond migrate up"):
                await check_async(connection, schema)


@pytest.mark.parametrize(
    ("number", "serves", "remedy"),
    [
        (99, 99, "install a newer one"),
        (0, 0, "run `millpond migrate up`"),
    ],
)
async def test_a_schema_that_does_not_fit_this_code(database: Database, number: int, serves: int, remedy: str) -> None:
    with database.connect(autocommit=True) as connection:
        set_revision(connection, database.schema, number, serves)
        with pytest.raises(SchemaMismatch, match=remedy):
            check(connection, database.schema)
    async with await database.connect_async() as connection:
        with pytest.raises(SchemaMismatch, match=remedy):
            await check_async(connection, database.schema)


@pytest.mark.parametrize(("number", "serves"), [(99, 1), (1, 1)])
def test_a_newer_schema_that_still_serves_this_code_is_fine(database: Database, number: int, serves: int) -> None:
    with database.connect(autocommit=True) as connection:
        set_revision(connection, database.schema, number, serves)
        check(connection, database.schema)


def set_revision(connection: psycopg.Connection[Any], schema: str, number: int, serves: int) -> None:
    """Make the schema say that it is at this revision."""
    update = sql.SQL("UPDATE {}.revision SET number = %s, serves = %s").format(sql.Identifier(schema))
    connection.execute(update, [number, serves])
