-- Finds at most {size} running jobs whose worker is no more: it has no row in workers. Workers that are silent for longer
-- than their lease have lost theirs in the statement before (bury_workers), and never get it again.
--
-- Who holds jobs is found by one index probe per worker, so jobs of workers that live are not looked at, however many
-- they are. Those among {refused} are left out.
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
)
SELECT held.id
FROM dead
CROSS JOIN LATERAL (
    SELECT j.id
    FROM {schema}.jobs AS j
    WHERE j.state = 'running' AND j.worker_id = dead.worker_id AND j.id <> ALL ({refused}::bigint[])
    LIMIT {size}
) AS held
LIMIT {size}
