"""All commands as one application, and what becomes of their errors."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import psycopg
import typer

from millpond.cli import demo, migrate, status, worker
from millpond.cli.output import complain, say
from millpond.errors import MillpondError
from millpond.store.sqlstates import said

app = typer.Typer(
    help="Jobs in Postgres, run by a tenant-isolated pool of workers.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they would show local variables, and so DSNs with their passwords
)


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"millpond {version('millpond')}")
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """What all commands share."""


app.add_typer(migrate.commands, name="migrate")
app.command()(worker.worker)
app.command()(status.status)
app.command()(demo.demo)


def run() -> None:
    """Run the command that the arguments name. An error of ours is one sentence and exit status 1, no traceback."""
    try:
        app()
    except MillpondError as error:
        complain(str(error))
        raise SystemExit(1) from None
    except psycopg.Error as error:
        complain(f"The database refuses: {said(error)}.")
        raise SystemExit(1) from None
