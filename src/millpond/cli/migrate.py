"""`millpond migrate`: bring a schema to the newest revision, or back, or see where it is."""

from __future__ import annotations

from typing import Annotated

import typer

from millpond.cli.options import Dsn, Schema
from millpond.cli.output import say
from millpond.store import migrations
from millpond.store.dsn import described

commands = typer.Typer(
    help="Create and change the tables. Safe to run from many machines at once.", no_args_is_help=True
)


@commands.command()
def up(dsn: Dsn, schema: Schema) -> None:
    """Run what is pending; nothing when the schema is at the newest revision."""
    before = migrations.status(dsn, schema)
    migrations.upgrade(dsn, schema)
    _tell(dsn, schema, before, migrations.status(dsn, schema))


@commands.command()
def down(
    dsn: Dsn,
    schema: Schema,
    steps: Annotated[int, typer.Option("--steps", "-n", min=1, help="How many revisions to take back.")] = 1,
) -> None:
    """Take the newest revisions back, with the data that only they can hold: the first one holds all the jobs."""
    before = migrations.status(dsn, schema)
    migrations.downgrade(dsn, schema, steps)
    _tell(dsn, schema, before, migrations.status(dsn, schema))


@commands.command()
def status(
    dsn: Dsn,
    schema: Schema,
    check: Annotated[bool, typer.Option("--check", help="Leave with 1 when something is pending.")] = False,
) -> None:
    """List the revisions, applied and pending. Changes nothing."""
    found = migrations.status(dsn, schema)
    for migration in found.applied:
        say(f"applied  {migration.revision}  {migration.title}")
    for migration in found.pending:
        say(f"pending  {migration.revision}  {migration.title}")
    if check and found.pending:
        raise typer.Exit(1)


@commands.command()
def sql(
    schema: Schema,
    span: Annotated[str, typer.Argument(help="To a revision, or `from:to`.")] = "",
    going_down: Annotated[bool, typer.Option("--down", help="The way back.")] = False,
) -> None:
    """Print the SQL instead of running it, for those who run it themselves. Needs no database."""
    say(migrations.sql(schema, span or ("head:base" if going_down else "head"), down=going_down).rstrip())


def _tell(dsn: str, schema: str, before: migrations.MigrationStatus, after: migrations.MigrationStatus) -> None:
    where = f"Schema {schema!r} of {described(dsn)}"
    steps = abs(len(after.applied) - len(before.applied))
    at = f"is at {after.applied[-1].revision}" if after.applied else "is gone"
    say(f"{where} {at} ({steps} {'step' if steps == 1 else 'steps'}).")
