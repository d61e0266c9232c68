-- Writes what became of attempts: one statement for every kind of outcome.
--
-- The guard is (id, claim token) of a running row: a row that was taken back, or that is gone, is left alone, and its id
-- is returned. All other rows have moved. What hands a row back or sets it up for another attempt wakes the workers.
WITH outcomes AS MATERIALIZED (
    SELECT
        o.id,
        o.claim_token,
        o.state,
        now() + make_interval(secs => o.delay) AS scheduled_at,
        CASE WHEN o.state IN ('completed', 'cancelled', 'discarded') THEN now() END AS finalized_at,
        coalesce(o.refund, 0) AS refund,
        o.error || jsonb_build_object('at', now()) AS error
    FROM jsonb_to_recordset({outcomes}::text::jsonb) AS o (
        id bigint, claim_token bigint, state text, delay double precision, refund integer, error jsonb
    )
), settled AS (
    UPDATE {schema}.jobs AS j
    SET
        state = o.state,
        scheduled_at = coalesce(o.scheduled_at, j.scheduled_at),
        finalized_at = o.finalized_at,
        attempt = j.attempt - o.refund,
        -- The first error and the last ones are kept.
        errors = CASE
            WHEN o.error IS NULL THEN j.errors
            WHEN jsonb_array_length(j.errors) >= 20 THEN (j.errors - 1) || o.error
            ELSE coalesce(j.errors, '[]') || o.error
        END,
        worker_id = NULL,
        claim_token = NULL
    FROM outcomes AS o
    WHERE j.id = o.id AND j.claim_token = o.claim_token AND j.state = 'running'
    RETURNING j.id
)
SELECT o.id
FROM outcomes AS o
LEFT JOIN settled AS s ON s.id = o.id
WHERE s.id IS NULL
UNION ALL
SELECT NULL::bigint FROM pg_notify({channel}, '') WHERE {wake}
