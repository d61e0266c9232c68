-- Claims at most {size} jobs of one queue, so that each tenant has its turn.
--
-- The ring is the tenants with available jobs: those after {cursor}, then those up to it, at most {ring_size} in all,
-- found by one index probe each. Every tenant with room gives the same share. A tenant's own jobs go by priority, then
-- by age. So the cost depends on the batch, not on the backlog. A worker whose row is gone gets nothing.
--
-- The first row is no job but where the turns stand: the next cursor, and whether to claim again at once.
WITH RECURSIVE after_cursor (tenant_id, place) AS (
    (
        SELECT j.tenant_id, 1
        FROM {schema}.jobs AS j
        WHERE j.state = 'available' AND j.queue = {queue} AND j.tenant_id > {cursor}
        ORDER BY j.tenant_id
        LIMIT 1
    )
    UNION ALL
    SELECT following.tenant_id, ring.place + 1
    FROM after_cursor AS ring
    CROSS JOIN LATERAL (
        SELECT j.tenant_id
        FROM {schema}.jobs AS j
        WHERE j.state = 'available' AND j.queue = {queue} AND j.tenant_id > ring.tenant_id
        ORDER BY j.tenant_id
        LIMIT 1
    ) AS following
    WHERE ring.place < {ring_size}
), up_to_cursor (tenant_id, place) AS (
    (
        SELECT j.tenant_id, 1 + (SELECT count(*) FROM after_cursor)::integer
        FROM {schema}.jobs AS j
        WHERE j.state = 'available' AND j.queue = {queue} AND j.tenant_id <= {cursor}
            AND (SELECT count(*) FROM after_cursor) < {ring_size}
        ORDER BY j.tenant_id
        LIMIT 1
    )
    UNION ALL
    SELECT following.tenant_id, ring.place + 1
    FROM up_to_cursor AS ring
    CROSS JOIN LATERAL (
        SELECT j.tenant_id
        FROM {schema}.jobs AS j
        WHERE j.state = 'available' AND j.queue = {queue} AND j.tenant_id > ring.tenant_id AND j.tenant_id <= {cursor}
        ORDER BY j.tenant_id
        LIMIT 1
    ) AS following
    WHERE ring.place < {ring_size}
), ring AS MATERIALIZED (
    SELECT found.tenant_id, found.place, coalesce(known.room, {default_room}) AS room
    FROM (
        SELECT a.tenant_id, a.place FROM after_cursor AS a
        UNION ALL
        SELECT u.tenant_id, u.place FROM up_to_cursor AS u
    ) AS found
    LEFT JOIN unnest({tenants}::text[], {rooms}::integer[]) AS known (tenant_id, room)
        ON known.tenant_id = found.tenant_id
), shares AS MATERIALIZED (
    SELECT
        ring.tenant_id,
        ring.place,
        least(ring.room, ceil({size}::numeric / count(*) OVER ())::integer) AS share
    FROM ring
    WHERE ring.room > 0 AND EXISTS (SELECT FROM {schema}.workers AS w WHERE w.id = {worker_id})
    ORDER BY ring.place
), picked AS MATERIALIZED (
    SELECT own.ctid AS place_on_disk, shares.tenant_id, shares.place, shares.share
    FROM shares
    CROSS JOIN LATERAL (
        SELECT j.ctid
        FROM {schema}.jobs AS j
        WHERE j.state = 'available' AND j.queue = {queue} AND j.tenant_id = shares.tenant_id
            AND j.executor = ANY ({executors}::text[])
        ORDER BY j.priority, j.scheduled_at, j.id
        LIMIT shares.share
        FOR UPDATE SKIP LOCKED
    ) AS own
    LIMIT {size}
), claimed AS (
    UPDATE {schema}.jobs AS j
    SET
        state = 'running',
        attempt = j.attempt + 1,
        attempted_at = now(),
        worker_id = {worker_id},
        claim_token = {claim_token}
    WHERE j.ctid = ANY (ARRAY(SELECT picked.place_on_disk FROM picked))
    RETURNING
        j.id, j.tenant_id, j.executor, j.args, j.attempt, j.max_attempts, j.priority, j.scheduled_at, j.timeout,
        j.metadata
)
SELECT
    NULL::bigint AS id,
    CASE
        WHEN (SELECT count(*) FROM picked) = {size}
            THEN (SELECT picked.tenant_id FROM picked ORDER BY picked.place DESC LIMIT 1)
        ELSE coalesce((SELECT ring.tenant_id FROM ring ORDER BY ring.place DESC LIMIT 1), '')
    END AS tenant_id,
    NULL::text AS executor,
    NULL::text AS args,
    (
        (SELECT count(*) FROM picked) = {size}
        OR (SELECT count(*) FROM ring) = {ring_size}
        OR EXISTS (SELECT FROM picked GROUP BY picked.tenant_id, picked.share HAVING count(*) = picked.share)
    )::integer AS attempt,
    NULL::integer AS max_attempts,
    NULL::smallint AS priority,
    NULL::double precision AS scheduled_at,
    NULL::double precision AS timeout,
    NULL::text AS metadata
UNION ALL
SELECT
    claimed.id, claimed.tenant_id, claimed.executor, claimed.args::text, claimed.attempt, claimed.max_attempts,
    claimed.priority, extract(epoch FROM claimed.scheduled_at)::double precision, claimed.timeout, claimed.metadata::text
FROM claimed
ORDER BY priority NULLS FIRST, scheduled_at, id
