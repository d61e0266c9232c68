-- Takes back those of the jobs {ids} that are still held by workers that are no more. What somebody has locked is being
-- settled right now, and is left for the next time.
--
-- Each attempt is charged, since user code may have run. The last one discards the job. Returns the id, the new state
-- and the worker of each.
WITH dead AS MATERIALIZED (
    SELECT DISTINCT j.worker_id
    FROM {schema}.jobs AS j
    WHERE j.id = ANY ({ids}::bigint[]) AND j.state = 'running'
        AND NOT EXISTS (SELECT FROM {schema}.workers AS w WHERE w.id = j.worker_id)
), lost AS MATERIALIZED (
    SELECT
        j.id,
        j.claim_token,
        j.worker_id,
        CASE WHEN j.attempt >= j.max_attempts THEN 'discarded' ELSE 'available' END AS state,
        CASE WHEN j.attempt >= j.max_attempts THEN now() END AS finalized_at,
        jsonb_build_object(
            'at', now(),
            'attempt', j.attempt,
            'worker', j.worker_id,
            'type', 'WorkerLost',
            'message', 'The worker was lost while it held this attempt: it died, or was silent for longer than its lease.'
        ) AS error
    FROM {schema}.jobs AS j
    JOIN dead ON dead.worker_id = j.worker_id
    WHERE j.id = ANY ({ids}::bigint[]) AND j.state = 'running'
    FOR UPDATE OF j SKIP LOCKED
), reaped AS (
    UPDATE {schema}.jobs AS j
    SET
        state = lost.state,
        finalized_at = lost.finalized_at,
        errors = CASE
            WHEN jsonb_array_length(j.errors) >= 20 THEN (j.errors - 1) || lost.error
            ELSE coalesce(j.errors, '[]') || lost.error
        END,
        worker_id = NULL,
        claim_token = NULL
    FROM lost
    WHERE j.id = lost.id AND j.claim_token = lost.claim_token AND j.state = 'running'
    RETURNING j.id, j.state
)
SELECT reaped.id, reaped.state, lost.worker_id, (SELECT count(*) FROM pg_notify({channel}, ''))
FROM reaped
JOIN lost ON lost.id = reaped.id
