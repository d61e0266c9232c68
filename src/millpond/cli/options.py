"""The options that commands share, each with its default, in one place."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from millpond.settings import DEFAULT_SCHEMA

Dsn: TypeAlias = Annotated[
    str,
    typer.Option(
        envvar="MILLPOND_DSN",
        help="The database: a conninfo (host=… dbname=…), a URI (postgresql://…) or an SQLAlchemy URL.",
    ),
]

Schema: TypeAlias = Annotated[
    str,
    typer.Option(
        envvar="MILLPOND_SCHEMA",
        help="The schema that holds this installation.",
        default_factory=lambda: DEFAULT_SCHEMA,
        show_default=DEFAULT_SCHEMA,
    ),
]
