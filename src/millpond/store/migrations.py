"""The migrations from code: what the command line, the tests and an application's own scripts call.

One schema is one installation; several may live in one database. All of it is safe to call from many processes at once.
"""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass
from typing import Final, TextIO

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from millpond.settings import checked_schema
from millpond.shipped import shipped
from millpond.store.database import check_migratable
from millpond.store.ddl import OPTION
from millpond.store.migrator import open_engine, plain_errors

DSN: Final = "millpond_dsn"
"""The attribute of an Alembic Config that holds the DSN."""

_one_environment: Final = threading.Lock()
"""Alembic keeps the environment that runs in globals of its own: one at a time in a process, whatever the schema."""


@dataclass(frozen=True, slots=True)
class Migration:
    """One step: a file of `migrations/versions`."""

    revision: str
    title: str


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """Where a schema is, and what there is to come; in the order in which the steps run."""

    applied: tuple[Migration, ...]
    pending: tuple[Migration, ...]


def upgrade(dsn: str, schema: str) -> None:
    """Bring the schema to the newest revision; does nothing when it is there. Raises StoreError."""
    with _one_environment:
        command.upgrade(_config(dsn, schema), "head")


def downgrade(dsn: str, schema: str, steps: int = 1) -> None:
    """Take the newest `steps` revisions back, with the data that only they can hold. Raises StoreError."""
    kept = status(dsn, schema).applied[:-steps]
    with _one_environment:
        command.downgrade(_config(dsn, schema), kept[-1].revision if kept else "base")


def history() -> tuple[Migration, ...]:
    """All steps that this code knows, the first one first."""
    script = ScriptDirectory(shipped("migrations"))
    return tuple(Migration(step.revision, step.doc) for step in script.walk_revisions())[::-1]


def status(dsn: str, schema: str) -> MigrationStatus:
    """Where this schema is. Changes nothing. Raises StoreError."""
    with plain_errors(), open_engine(dsn).connect() as connection:
        check_migratable(connection, checked_schema(schema))
        context = MigrationContext.configure(connection, opts={"version_table_schema": schema})
        current = context.get_current_revision()
    steps = history()
    reached = next((number for number, step in enumerate(steps, 1) if step.revision == current), 0)
    return MigrationStatus(steps[:reached], steps[reached:])


def sql(schema: str, span: str = "head", *, down: bool = False) -> str:
    """The SQL for those who run it themselves: to a revision (`head`), or of a span (`millpond_0001:head`)."""
    output = io.StringIO()
    run = command.downgrade if down else command.upgrade
    with _one_environment:
        run(_config("", schema, output), span, sql=True)
    return output.getvalue()


def _config(dsn: str, schema: str, output: TextIO | None = None) -> Config:
    config = Config(output_buffer=output, attributes={OPTION: checked_schema(schema), DSN: dsn})
    config.set_main_option("script_location", str(shipped("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
