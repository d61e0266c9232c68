"""For applications that run our migrations in their own Alembic environment, as a branch beside their own.

In the application's `alembic.ini`, name our folder beside its own, and the schema unless it is `millpond`:

    version_locations =
        %(here)s/migrations/versions
        millpond:migrations/versions
    path_separator = newline
    millpond_schema = jobs

`alembic upgrade heads` then runs both histories, `alembic upgrade millpond@head` ours alone; one `alembic_version`, the
application's, holds a row for each. Branches are never merged. When the application autogenerates over several schemas
(`include_schemas=True`), its `env.py` leaves ours out, or every `--autogenerate` would drop our tables:

    context.configure(..., include_schemas=True, include_name=without_millpond(context.config))
"""

from __future__ import annotations

from alembic.config import Config
from alembic.runtime.environment import IncludeNameFn, NameFilterParentNames, NameFilterType

from millpond.store.ddl import schema_of


def without_millpond(config: Config, also: IncludeNameFn | None = None) -> IncludeNameFn:
    """An `include_name` that leaves our schema out, and asks `also`, the application's own one, about all else."""
    ours = schema_of(config)

    def include_name(name: str | None, kind: NameFilterType, parents: NameFilterParentNames) -> bool:
        if kind == "schema" and name == ours:
            return False
        return also is None or also(name, kind, parents)

    return include_name
