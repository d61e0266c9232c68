"""Rules for the files of SQL: one statement each, which a migrated database accepts, and which some Statement sends."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

import millpond
from millpond.store.statement import compose, load
from millpond.testing.database import Database

NAMES = sorted(entry.name.removesuffix(".sql") for entry in files("millpond.store").joinpath("sql").iterdir())

LITERAL = re.compile(r"'(?:[^']|'')*'")
SELECT_LIST_STAR = re.compile(r"(?:SELECT|RETURNING|,|\.)\s*\*", re.IGNORECASE)


def code(name: str) -> str:
    """The statement without its comments."""
    return re.sub(r"--.*", "", load(name))


@pytest.mark.parametrize("style", ["named", "numbered"])
def test_every_file_prepares_against_a_migrated_database(database: Database, style: str) -> None:
    with contextlib.closing(database.connect(autocommit=True)) as conn:
        for name in NAMES:
            try:
                conn.execute(f"PREPARE {name} AS {_numbered(name, database.schema, style)}")
            except psycopg.Error as error:
                error.add_note(f"{name}.sql")
                raise


def _numbered(name: str, schema: str, style: str) -> str:
    """As a driver sends it: with `$1` for each name."""
    if style == "numbered":
        return compose(name, schema, "numbered").text
    composed = compose(name, schema, "named")
    numbers = {name: f"${number}" for number, name in enumerate(composed.order, 1)}
    return composed.text % numbers


@pytest.mark.parametrize("name", NAMES)
def test_a_file_begins_with_what_it_is_for(name: str) -> None:
    assert load(name).startswith("-- ")


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_one_statement(name: str) -> None:
    assert ";" not in code(name)


@pytest.mark.parametrize("name", NAMES)
def test_no_select_list_is_a_star(name: str) -> None:
    assert not SELECT_LIST_STAR.search(code(name))


@pytest.mark.parametrize("name", NAMES)
def test_no_placeholder_is_within_quotes(name: str) -> None:
    assert not [literal for literal in LITERAL.findall(code(name)) if "{" in literal]


@pytest.mark.parametrize("name", NAMES)
def test_no_percent_sign_can_be_taken_for_a_placeholder(name: str) -> None:
    assert "%" not in load(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_table_s_schema_is_always_named(name: str) -> None:
    tables = ("jobs", "workers", "duties", "revision")
    assert not re.search(rf"(?:FROM|JOIN|INTO|UPDATE)\s+(?:{'|'.join(tables)})\b", code(name))


def test_every_file_is_sent_by_some_statement_and_none_is_missing() -> None:
    sent = {name for path in Path(millpond.__file__).parent.rglob("*.py") for name in _statements(path)}
    assert sent == set(NAMES)


def _statements(path: Path) -> Iterator[str]:
    """The names of the statements that a module makes."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Call(func=ast.Name(id="Statement"), args=[ast.Constant(value=str(name)), *_]):
                yield name


def test_a_schema_s_name_is_always_a_quoted_identifier() -> None:
    hostile = 'We ird"x; DROP TABLE jobs --'
    for name in NAMES:
        text = compose(name, hostile, "numbered").text
        assert hostile not in text.replace(sql.Identifier(hostile).as_string(None), "")
