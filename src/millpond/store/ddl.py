"""What migrations are written with: the schema's name, put into literal SQL once, as a quoted identifier.

The name comes from, in this order: `config.attributes["millpond_schema"]`, the option `millpond_schema` of the
Alembic configuration, the variable `MILLPOND_SCHEMA`; else it is `millpond`.
"""

from __future__ import annotations

import os
from typing import Final, LiteralString

from alembic import op
from alembic.config import Config
from psycopg import sql
from sqlalchemy import TextClause, text

from millpond.settings import DEFAULT_SCHEMA, checked_schema

OPTION: Final = "millpond_schema"
VARIABLE: Final = "MILLPOND_SCHEMA"

_CREATE: Final = """
BEGIN
    IF to_regnamespace(quote_ident({name})) IS NULL THEN
        CREATE SCHEMA {schema};
        COMMENT ON SCHEMA {schema} IS {mark};
    END IF;
END
"""

_DROP: Final = """
BEGIN
    IF obj_description(to_regnamespace(quote_ident({name})), 'pg_namespace') = {mark} THEN
        DROP SCHEMA {schema};
    END IF;
EXCEPTION WHEN dependent_objects_still_exist THEN
    NULL;
END
"""

_MARK: Final = "Made by millpond, which drops it when it is the last to leave."


def schema_of(config: Config | None) -> str:
    """The schema that this Alembic configuration is about. Raises SettingsError on a name that Postgres cannot use."""
    named = config and (config.attributes.get(OPTION) or config.get_main_option(OPTION))
    return checked_schema(named or os.environ.get(VARIABLE) or DEFAULT_SCHEMA)


def in_schema(statement: LiteralString) -> TextClause:
    """This statement of a running migration, with `{schema}` as the quoted name of its schema."""
    return _plain(sql.SQL(statement).format(schema=sql.Identifier(this_schema())))


def this_schema() -> str:
    """The schema of the running migration."""
    return schema_of(op.get_context().config)


def create_schema(schema: str) -> TextClause:
    """Make the schema, and mark it as ours, unless it is there already: then no right to make one is needed."""
    return _block(_CREATE, schema)


def drop_schema(schema: str) -> TextClause:
    """Drop the schema if it was ours to make and nothing is left in it."""
    return _block(_DROP, schema)


def drop_version_table(schema: str) -> TextClause:
    """Drop Alembic's own table in this schema."""
    return _plain(sql.SQL("DROP TABLE IF EXISTS {schema}.alembic_version").format(schema=sql.Identifier(schema)))


def _block(body: LiteralString, schema: str) -> TextClause:
    """An anonymous block, quoted as a literal: no name can close the quotes around it."""
    composed = sql.SQL(body).format(name=sql.Literal(schema), schema=sql.Identifier(schema), mark=sql.Literal(_MARK))
    return _plain(sql.SQL("DO {body}").format(body=sql.Literal(composed.as_string(None))))


def _plain(composed: sql.Composed) -> TextClause:
    """For SQLAlchemy, which would take `:name`, in a schema's name as anywhere else, for a parameter."""
    return text(composed.as_string(None).replace(":", "\\:"))
