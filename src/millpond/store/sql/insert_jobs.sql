-- Inserts jobs, and returns their ids in the order of the list. The field names of NewJob are the record's columns;
-- what a job leaves out is {queue}, {priority}, {max_attempts}. The database's clock decides what "now" and "due" are.
--
-- Workers hear of it once the caller's transaction commits, and never when it rolls back; of jobs for later too, since
-- upkeep sleeps until the next due time that it knows. Functions are qualified because the session is the caller's, and
-- its search_path may hide them.
WITH told AS MATERIALIZED (
    SELECT pg_catalog.count(*) AS times FROM pg_catalog.pg_notify({channel}, '') WHERE {notify}::boolean
), asked AS MATERIALIZED (
    SELECT
        a.place,
        a.executor,
        coalesce(a.args, 'null') AS args, -- args that are null in JSON are no NULL
        a.tenant_id,
        coalesce(a.queue, {queue}::text) AS queue,
        coalesce(a.priority, {priority}::smallint) AS priority,
        coalesce(a.max_attempts, {max_attempts}::integer) AS max_attempts,
        coalesce(
            a.scheduled_at, pg_catalog.now() + pg_catalog.make_interval(secs => a.delay), pg_catalog.now()
        ) AS scheduled_at,
        a.timeout,
        a.metadata
    FROM ROWS FROM (
        pg_catalog.jsonb_to_recordset({jobs}::text::jsonb) AS (
            executor text,
            args jsonb,
            tenant_id text,
            queue text,
            priority smallint,
            max_attempts integer,
            scheduled_at timestamptz,
            delay double precision,
            timeout double precision,
            metadata jsonb
        )
    ) WITH ORDINALITY AS a (
        executor, args, tenant_id, queue, priority, max_attempts, scheduled_at, delay, timeout, metadata, place
    )
)
INSERT INTO {schema}.jobs (
    executor, args, tenant_id, queue, priority, max_attempts, scheduled_at, state, timeout, metadata
)
SELECT
    asked.executor,
    asked.args,
    asked.tenant_id,
    asked.queue,
    asked.priority,
    asked.max_attempts,
    asked.scheduled_at,
    CASE WHEN asked.scheduled_at > pg_catalog.now() THEN 'scheduled' ELSE 'available' END,
    asked.timeout,
    asked.metadata
FROM asked
CROSS JOIN told
ORDER BY asked.place
RETURNING id
