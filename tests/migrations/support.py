"""What the tests of the migrations share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import psycopg

SCHEMAS = (
    "millpond",
    'We ird"x',
    "We ird;--schema",
    "Zürich 🦫",
    "a%b:c\\:d'$$ {x} %(y)s",
    "s" * 63,
)
"""Names that only a quoted identifier can hold, and one that nobody has to quote."""

_OBJECTS = """
SELECT 'schema', nspname, '' FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
UNION ALL
SELECT 'relation ' || relkind::text, nspname, relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
UNION ALL
SELECT 'constraint', nspname, conname || ' ' || pg_get_constraintdef(pg_constraint.oid)
FROM pg_constraint JOIN pg_namespace ON pg_namespace.oid = connamespace
WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
UNION ALL
SELECT 'index', schemaname, indexdef FROM pg_indexes
WHERE schemaname !~ '^pg_' AND schemaname <> 'information_schema'
UNION ALL
SELECT 'column', table_schema, concat_ws(' ', table_name, column_name, data_type, column_default, is_nullable)
FROM information_schema.columns WHERE table_schema !~ '^pg_' AND table_schema <> 'information_schema'
UNION ALL
SELECT 'type', nspname, typname FROM pg_type JOIN pg_namespace ON pg_namespace.oid = typnamespace
WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
UNION ALL
SELECT 'function', nspname, proname FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace
WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'
"""


def objects(connection: psycopg.Connection[Any]) -> set[tuple[str, ...]]:
    """Everything that somebody made in this database, with its definition."""
    return set(connection.execute(_OBJECTS).fetchall())


def eventually(fact: Callable[[], Any], within: float = 20.0) -> Any:
    """The fact, as soon as it is true; fails when it does not become so within these seconds."""
    deadline = time.monotonic() + within
    while not (found := fact()):
        assert time.monotonic() < deadline, f"{fact} did not become true within {within:g} s"
        time.sleep(0.01)
    return found
