"""What commands say: results on standard output, everything else on standard error."""

from __future__ import annotations

import typer


def say(text: str) -> None:
    """A line of the result."""
    typer.echo(text)


def complain(text: str) -> None:
    """A line for the person, not for the next program in the pipe."""
    typer.echo(text, err=True)
