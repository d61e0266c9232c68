-- Takes back at most {size} running jobs of workers that are no more: no row in workers. Workers that are silent for
-- longer than their lease have lost theirs in the statement before (bury_workers), and never get it again.
--
-- Each attempt is charged, since user code may have run. The last one discards the job. Returns the id, the new state
-- and the worker of each.
WITH RECURSIVE owners (worker_id) AS (
    (SELECT j.worker_id FROM {schema}.jobs AS j WHERE j.state = 'running' ORDER BY j.worker_id LIMIT 1)
    UNION ALL
    SELECT following.worker_id
    FROM owners AS o
    CROSS JOIN LATERAL (
        SELECT j.worker_id
        FROM {schema}.jobs AS j
        WHERE j.state = 'running' AND j.worker_id > o.worker_id
        ORDER BY j.worker_id
        LIMIT 1
    ) AS following
), dead AS MATERIALIZED (
    SELECT o.worker_id
    FROM owners AS o
    WHERE NOT EXISTS (SELECT FROM {schema}.workers AS w WHERE w.id = o.worker_id)
), lost AS MATERIALIZED (
    SELECT
        held.id,
        held.claim_token,
        held.worker_id,
        CASE WHEN held.attempt >= held.max_attempts THEN 'discarded' ELSE 'available' END AS state,
        CASE WHEN held.attempt >= held.max_attempts THEN now() END AS finalized_at,
        jsonb_build_object(
            'at', now(),
            'attempt', held.attempt,
            'worker', held.worker_id,
            'type', 'WorkerLost',
            'message', 'The worker was lost while it held this attempt: it died, or was silent for longer than its lease.'
        ) AS error
    FROM dead
    CROSS JOIN LATERAL (
        SELECT j.id, j.claim_token, j.worker_id, j.attempt, j.max_attempts
        FROM {schema}.jobs AS j
        WHERE j.state = 'running' AND j.worker_id = dead.worker_id
        LIMIT {size}
        FOR UPDATE SKIP LOCKED
    ) AS held
    LIMIT {size}
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
