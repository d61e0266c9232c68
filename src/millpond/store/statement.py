"""One SQL statement as a value: what to send, with which parameters, and how to read the answer. No I/O.

A statement lives in a file of its own under `sql/`, with `{schema}` where the schema's name goes and `{name}` where a
parameter goes. Both are put in by psycopg.sql, once per schema name and style of placeholder; no SQL text is edited.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from string import Formatter
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from psycopg import sql

T = TypeVar("T")

Row: TypeAlias = Sequence[Any]
"""A row as a plain tuple, in the statement's own order of columns, whatever row factory the connection has."""

Style: TypeAlias = Literal["named", "numbered"]
"""Placeholders as `%(name)s` (psycopg, psycopg2, Django) or as `$1` (asyncpg)."""


@dataclass(frozen=True, slots=True)
class Statement(Generic[T]):
    """What to run, and how to read its rows."""

    name: str
    schema: str
    params: Mapping[str, Any]
    decode: Callable[[Sequence[Row]], T]

    def text(self, style: Style = "named") -> str:
        """The SQL with placeholders of this style."""
        return compose(self.name, self.schema, style).text

    def positional(self) -> list[Any]:
        """The parameters in the order of their numbers."""
        return [self.params[name] for name in compose(self.name, self.schema, "numbered").order]


@dataclass(frozen=True, slots=True)
class Composed:
    """SQL ready to send, and the order of its parameters."""

    text: str
    order: tuple[str, ...]


@cache
def load(name: str) -> str:
    """The text of `sql/<name>.sql`."""
    return files("millpond.store").joinpath("sql", f"{name}.sql").read_text("utf-8")


@cache
def compose(name: str, schema: str, style: Style) -> Composed:
    """The statement of this name, for this schema, with this style of placeholder."""
    template = load(name)
    fields = (field for _, field, _, _ in Formatter().parse(template) if field)
    order = tuple(dict.fromkeys(field for field in fields if field != "schema"))
    placeholders: dict[str, sql.Composable] = {
        field: sql.Placeholder(field) if style == "named" else sql.SQL(f"${number}")
        for number, field in enumerate(order, 1)
    }
    identifier = sql.Identifier(schema).as_string(None)
    if style == "named":
        identifier = identifier.replace("%", "%%")  # beside such placeholders, a percent sign is written twice
    # The .sql files ship with the package: as trustworthy as a literal.
    composed = sql.SQL(template).format(schema=sql.SQL(identifier), **placeholders)
    return Composed(composed.as_string(None), order)


def nothing(rows: Sequence[Row]) -> None:
    """The decoder of a statement whose answer says nothing."""
