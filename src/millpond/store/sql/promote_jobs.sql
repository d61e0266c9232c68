-- Makes at most {size} due jobs available, and tells how many, and the seconds until the next one is due. Those among
-- {refused} are left as they are; so is, unless {ids} is NULL, what is not among {ids}.
WITH due AS MATERIALIZED (
    SELECT j.ctid AS place_on_disk
    FROM {schema}.jobs AS j
    WHERE j.state IN ('scheduled', 'retryable') AND j.scheduled_at <= now() AND j.id <> ALL ({refused}::bigint[])
        AND ({ids}::bigint[] IS NULL OR j.id = ANY ({ids}::bigint[]))
    ORDER BY j.scheduled_at, j.id
    LIMIT {size}
    FOR UPDATE SKIP LOCKED
), promoted AS (
    UPDATE {schema}.jobs AS j
    SET state = 'available'
    WHERE j.ctid = ANY (ARRAY(SELECT due.place_on_disk FROM due))
    RETURNING j.id
), told AS MATERIALIZED (
    SELECT 1 FROM pg_notify({channel}, '') WHERE EXISTS (SELECT FROM due)
)
SELECT
    (SELECT count(*) FROM promoted),
    (
        SELECT extract(epoch FROM j.scheduled_at - now())::double precision
        FROM {schema}.jobs AS j
        WHERE j.state IN ('scheduled', 'retryable') AND j.scheduled_at > now()
        ORDER BY j.scheduled_at
        LIMIT 1
    ),
    (SELECT count(*) FROM told)
