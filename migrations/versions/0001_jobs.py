"""The first schema: jobs, the workers that hold them, and the duties that keep them.

Revision ID: millpond_0001
Revises:
Phase: expand
"""

from __future__ import annotations

from alembic import op

from millpond.store.ddl import create_schema, drop_schema, in_schema, this_schema

revision = "millpond_0001"
down_revision: str | None = None
branch_labels: tuple[str, ...] | None = ("millpond",)
depends_on: str | None = None

UP = (
    """
    CREATE TABLE {schema}.jobs (
        id bigserial PRIMARY KEY,
        created_at timestamptz NOT NULL DEFAULT now(),
        scheduled_at timestamptz NOT NULL DEFAULT now(),
        attempted_at timestamptz,
        finalized_at timestamptz,
        claim_token bigint,
        timeout double precision,
        worker_id uuid,
        attempt integer NOT NULL DEFAULT 0,
        max_attempts integer NOT NULL DEFAULT 25,
        priority smallint NOT NULL DEFAULT 100,
        state text NOT NULL DEFAULT 'available',
        tenant_id text COLLATE "C" NOT NULL,
        queue text COLLATE "C" NOT NULL DEFAULT 'default',
        executor text COLLATE "C" NOT NULL,
        args jsonb NOT NULL,
        metadata jsonb,
        errors jsonb,
        CONSTRAINT jobs_state_known CHECK (
            state IN ('available', 'scheduled', 'retryable', 'running', 'completed', 'cancelled', 'discarded')
        ),
        CONSTRAINT jobs_final_is_dated CHECK (
            (finalized_at IS NOT NULL) = (state IN ('completed', 'cancelled', 'discarded'))
        ),
        CONSTRAINT jobs_running_is_owned CHECK (
            (state = 'running') = (claim_token IS NOT NULL) AND (state = 'running') = (worker_id IS NOT NULL)
        ),
        CONSTRAINT jobs_numbers_in_bounds CHECK (attempt >= 0 AND max_attempts >= 1 AND priority >= 1 AND timeout > 0),
        CONSTRAINT jobs_names_in_bounds CHECK (
            length(tenant_id) BETWEEN 1 AND 255 AND length(queue) BETWEEN 1 AND 255
            AND length(executor) BETWEEN 1 AND 255
        )
    ) WITH (
        fillfactor = 85,
        autovacuum_vacuum_scale_factor = 0.02,
        autovacuum_vacuum_cost_limit = 2000,
        autovacuum_vacuum_cost_delay = 1
    )
    """,
    # claim_jobs: the turns of the tenants of a queue, and the order of a tenant's own jobs.
    """
    CREATE INDEX jobs_claim ON {schema}.jobs (queue, tenant_id, priority, scheduled_at, id) WHERE state = 'available'
    """,
    # reap_jobs: who holds running rows.
    """
    CREATE INDEX jobs_running ON {schema}.jobs (worker_id) WHERE state = 'running'
    """,
    # promote_jobs: what is due, and when the next one will be.
    """
    CREATE INDEX jobs_due ON {schema}.jobs (scheduled_at, id) WHERE state IN ('scheduled', 'retryable')
    """,
    """
    CREATE TABLE {schema}.workers (
        id uuid PRIMARY KEY,
        number bigserial UNIQUE,
        started_at timestamptz NOT NULL DEFAULT now(),
        beat_at timestamptz NOT NULL DEFAULT now(),
        expires_at timestamptz NOT NULL,
        name text NOT NULL,
        queues text[] NOT NULL,
        executors text[] NOT NULL
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE {schema}.duties (
        name text PRIMARY KEY,
        next_at timestamptz NOT NULL DEFAULT now()
    ) WITH (fillfactor = 50)
    """,
    """
    INSERT INTO {schema}.duties (name) VALUES ('reap')
    """,
    # check: whether this schema and a worker's code fit.
    """
    CREATE TABLE {schema}.revision (
        number integer PRIMARY KEY,
        serves integer NOT NULL
    )
    """,
    """
    INSERT INTO {schema}.revision (number, serves) VALUES (1, 1)
    """,
)

DOWN = (
    "DROP TABLE {schema}.revision",
    "DROP TABLE {schema}.duties",
    "DROP TABLE {schema}.workers",
    "DROP TABLE {schema}.jobs",
)


def upgrade() -> None:
    op.execute(create_schema(this_schema()))
    for statement in UP:
        op.execute(in_schema(statement))


def downgrade() -> None:
    for statement in DOWN:
        op.execute(in_schema(statement))
    op.execute(drop_schema(this_schema()))
