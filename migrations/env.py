"""How Alembic runs our migrations: one schema, `alembic_version` in it, one transaction per step.

The DSN and the schema come from the caller, when that is our own code, else from MILLPOND_DSN and MILLPOND_SCHEMA.
"""

from __future__ import annotations

import os
from functools import partial
from logging.config import fileConfig

from alembic import context
from alembic.util import CommandError
from sqlalchemy import Connection

from millpond.errors import MillpondError
from millpond.store.ddl import create_schema, drop_schema, drop_version_table, schema_of
from millpond.store.migrations import DSN
from millpond.store.migrator import migrate

config = context.config


def main() -> None:
    if config.config_file_name is not None:
        fileConfig(config.config_file_name, disable_existing_loggers=False)
    schema = schema_of(config)
    if context.is_offline_mode():
        run_offline(schema)
    else:
        migrate(dsn(), schema, partial(run, schema))


def dsn() -> str:
    given = config.attributes.get(DSN) or os.environ.get("MILLPOND_DSN")
    if not given:
        raise CommandError("Say which database: set MILLPOND_DSN.")
    return str(given)


def run(schema: str, connection: Connection) -> None:
    context.configure(connection=connection, version_table_schema=schema, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()


def run_offline(schema: str) -> None:
    context.configure(
        dialect_name="postgresql",
        version_table_schema=schema,
        transaction_per_migration=True,
        literal_binds=True,
        dialect_opts={"paramstyle": "named"},
    )
    if not context.get_starting_revision_argument():
        context.execute(create_schema(schema))
    with context.begin_transaction():
        context.run_migrations()
    if not context.get_revision_argument():
        context.execute(drop_version_table(schema))
        context.execute(drop_schema(schema))


try:
    main()
except MillpondError as error:
    # Alembic's own command line shows its own kind of error in one line, any other with a traceback.
    if config.cmd_opts is None:
        raise
    raise CommandError(str(error)) from error
