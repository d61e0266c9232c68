-- Finds at most {size} due jobs, those among {refused} left out.
SELECT j.id
FROM {schema}.jobs AS j
WHERE j.state IN ('scheduled', 'retryable') AND j.scheduled_at <= now() AND j.id <> ALL ({refused}::bigint[])
ORDER BY j.scheduled_at, j.id
LIMIT {size}
