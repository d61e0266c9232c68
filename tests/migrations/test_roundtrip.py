"""Up, down and up again: whatever the schema's name, whatever is in it, beside whatever else is there."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import sql

from millpond.errors import SchemaMismatch, SettingsError, StoreError
from millpond.store import migrations
from millpond.store.database import REVISION, check
from millpond.testing.database import Database
from tests.migrations.support import SCHEMAS, objects


@pytest.mark.parametrize("schema", SCHEMAS)
def test_down_leaves_nothing_behind_and_up_makes_the_same_again(empty: Database, schema: str) -> None:
    with empty.connect(autocommit=True) as connection:
        before = objects(connection)
        migrations.upgrade(empty.dsn, schema)
        check(connection, schema)
        migrated = objects(connection)
        assert {where for _, where, _ in migrated - before} == {schema}

        fill(connection, schema)
        migrations.downgrade(empty.dsn, schema, steps=99)
        assert objects(connection) == before

        migrations.upgrade(empty.dsn, schema)
        assert objects(connection) == migrated


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_printed_sql_does_the_same(empty: Database, schema: str) -> None:
    with empty.connect(autocommit=True) as connection:
        before = objects(connection)
        connection.execute(migrations.sql(schema))
        by_hand = objects(connection)
        assert not migrations.status(empty.dsn, schema).pending

        connection.execute(migrations.sql(schema, "head:base", down=True))
        assert objects(connection) == before

        migrations.upgrade(empty.dsn, schema)
        assert objects(connection) == by_hand


def test_up_again_changes_nothing(empty: Database) -> None:
    migrations.upgrade(empty.dsn, "millpond")
    with empty.connect(autocommit=True) as connection:
        fill(connection, "millpond")
        migrated = objects(connection)
        migrations.upgrade(empty.dsn, "millpond")
        assert objects(connection) == migrated
        assert connection.execute("SELECT count(*) FROM millpond.jobs").fetchone() == (1,)


def test_two_installations_share_a_database_and_nothing_else(empty: Database) -> None:
    migrations.upgrade(empty.dsn, "one")
    with empty.connect(autocommit=True) as connection:
        fill(connection, "one")
        one = objects(connection)
        migrations.upgrade(empty.dsn, "other")
        migrations.downgrade(empty.dsn, "other")
        assert objects(connection) == one
        assert connection.execute("SELECT count(*) FROM one.jobs").fetchone() == (1,)


def test_a_schema_that_was_there_before_stays(empty: Database) -> None:
    with empty.connect(autocommit=True) as connection:
        connection.execute("CREATE SCHEMA mine")
        before = objects(connection)
        migrations.upgrade(empty.dsn, "mine")
        migrations.downgrade(empty.dsn, "mine")
        assert objects(connection) == before


def test_a_schema_that_somebody_else_uses_too_stays(empty: Database) -> None:
    with empty.connect(autocommit=True) as connection:
        migrations.upgrade(empty.dsn, "millpond")
        connection.execute("CREATE TABLE millpond.theirs ()")
        migrations.downgrade(empty.dsn, "millpond")
        left = {(kind, name) for kind, where, name in objects(connection) if where == "millpond" and kind != "type"}
        assert left == {("schema", ""), ("relation r", "theirs")}


def test_the_search_path_does_not_matter(empty: Database) -> None:
    with empty.connect(autocommit=True) as connection:
        connection.execute("CREATE SCHEMA decoy")
        connection.execute("CREATE TABLE decoy.jobs ()")
        connection.execute("CREATE TABLE decoy.alembic_version (version_num text)")
        connection.execute("INSERT INTO decoy.alembic_version VALUES ('somebody else''s')")
        connection.execute(sql.SQL("ALTER DATABASE {} SET search_path = decoy").format(sql.Identifier(empty.name)))
        before = objects(connection)
        migrations.upgrade(empty.dsn, "millpond")
        migrations.downgrade(empty.dsn, "millpond")
        assert objects(connection) == before


def test_the_newest_file_is_the_revision_that_the_code_knows(empty: Database) -> None:
    migrations.upgrade(empty.dsn, "millpond")
    *_, newest = migrations.status(empty.dsn, "millpond").applied
    assert newest.revision == f"millpond_{REVISION:04}"
    with empty.connect() as connection:
        assert connection.execute("SELECT number FROM millpond.revision").fetchall() == [(REVISION,)]


@pytest.mark.parametrize("schema", ["", "nul\0", "pg_mine", "s" * 64, "é" * 32, "\ud800"])
def test_a_name_that_postgres_would_refuse_or_cut_is_refused_before(schema: str) -> None:
    with pytest.raises(SettingsError, match="schema"):
        migrations.upgrade("host=/nowhere", schema)


def test_a_newer_schema_is_not_touched(empty: Database) -> None:
    migrations.upgrade(empty.dsn, "millpond")
    with empty.connect(autocommit=True) as connection:
        connection.execute("UPDATE millpond.revision SET number = 99, serves = 1")
        connection.execute("UPDATE millpond.alembic_version SET version_num = 'millpond_0099'")
        before = objects(connection)
        for touch in (migrations.upgrade, migrations.downgrade, migrations.status):
            with pytest.raises(SchemaMismatch, match=r"at revision 99.*a newer one"):
                touch(empty.dsn, "millpond")
        assert objects(connection) == before
        check(connection, "millpond")  # while it says that it serves this code, a worker may run on it


def test_a_role_that_may_not_is_told_so_in_one_sentence(empty: Database) -> None:
    role = sql.Identifier(f"{empty.name}_worker")
    with empty.connect(autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
        try:
            before = objects(connection)
            worker = f"{empty.dsn} options='-c role={empty.name}_worker'"
            with pytest.raises(StoreError, match=r"^The database refused: permission denied.*\.$"):
                migrations.upgrade(worker, "millpond")
            assert objects(connection) == before
            migrations.upgrade(empty.dsn, "millpond")
            with pytest.raises(StoreError, match=r"^The database refused: permission denied.*\.$"):
                migrations.status(worker, "millpond")
        finally:
            connection.execute(sql.SQL("DROP ROLE {}").format(role))


def test_a_role_that_owns_the_schema_needs_no_other_right(empty: Database) -> None:
    role = sql.Identifier(f"{empty.name}_migrator")
    with empty.connect(autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))
        try:
            connection.execute(sql.SQL("CREATE SCHEMA millpond AUTHORIZATION {}").format(role))
            migrator = f"{empty.dsn} options='-c role={empty.name}_migrator'"
            migrations.upgrade(migrator, "millpond")
            assert not migrations.status(migrator, "millpond").pending
            migrations.downgrade(migrator, "millpond")
        finally:
            connection.execute(sql.SQL("DROP OWNED BY {}").format(role))
            connection.execute(sql.SQL("DROP ROLE {}").format(role))


def fill(connection: psycopg.Connection[Any], schema: str) -> None:
    """A job that runs, and the worker that holds it."""
    name = sql.Identifier(schema)
    connection.execute(
        sql.SQL(
            "INSERT INTO {}.workers (id, expires_at, name, queues, executors) "
            "VALUES (gen_random_uuid(), now(), 'w', '{{}}', '{{}}')"
        ).format(name)
    )
    connection.execute(
        sql.SQL(
            "INSERT INTO {}.jobs (tenant_id, executor, args, state, claim_token, worker_id) "
            "VALUES ('t', 'e', '{{}}', 'running', 1, gen_random_uuid())"
        ).format(name)
    )
