"""${message}.

Revision ID: ${up_revision}
Revises: ${down_revision | comma,n}
Phase: expand or contract
"""

from __future__ import annotations

from alembic import op

from millpond.store.ddl import in_schema

revision = ${repr(up_revision)}
down_revision: str | None = ${repr(down_revision)}
branch_labels: tuple[str, ...] | None = ${repr(branch_labels)}
depends_on: str | None = ${repr(depends_on)}

UP = (
    """
    """,
)

DOWN = (
    """
    """,
)


def upgrade() -> None:
    for statement in UP:
        op.execute(in_schema(statement))


def downgrade() -> None:
    for statement in DOWN:
        op.execute(in_schema(statement))
