-- Jobs by queue, state and executor, and whether a live worker serves that key in that queue. Reads the whole table: for
-- people, not for timers.
SELECT
    j.queue,
    j.state,
    j.executor,
    count(*),
    EXISTS (
        SELECT FROM {schema}.workers AS w
        WHERE w.expires_at >= now() AND j.queue = ANY (w.queues) AND j.executor = ANY (w.executors)
    ) AS served
FROM {schema}.jobs AS j
GROUP BY j.queue, j.state, j.executor
ORDER BY j.queue, j.state, j.executor
