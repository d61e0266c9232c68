-- Which executor keys stand at the head of their tenants' lines and are none of {executors}: the first {depth} jobs of
-- each of the first {ring_size} tenants after {cursor} are looked at. Jobs that can be claimed move on, so those that
-- cannot gather there; the cost does not depend on the backlog. Returns (key, jobs seen), and the last tenant looked at
-- in the row without a key (none: the ring is through).
WITH RECURSIVE ring (tenant_id, place) AS (
    (
        SELECT j.tenant_id, 1
        FROM {schema}.jobs AS j
        WHERE j.state = 'available' AND j.queue = {queue} AND j.tenant_id > {cursor}
        ORDER BY j.tenant_id
        LIMIT 1
    )
    UNION ALL
    SELECT following.tenant_id, ring.place + 1
    FROM ring
    CROSS JOIN LATERAL (
        SELECT j.tenant_id
        FROM {schema}.jobs AS j
        WHERE j.state = 'available' AND j.queue = {queue} AND j.tenant_id > ring.tenant_id
        ORDER BY j.tenant_id
        LIMIT 1
    ) AS following
    WHERE ring.place < {ring_size}
), heads AS MATERIALIZED (
    SELECT head.executor
    FROM ring
    CROSS JOIN LATERAL (
        SELECT j.executor
        FROM {schema}.jobs AS j
        WHERE j.state = 'available' AND j.queue = {queue} AND j.tenant_id = ring.tenant_id
        ORDER BY j.priority, j.scheduled_at, j.id
        LIMIT {depth}
    ) AS head
)
SELECT heads.executor, count(*), NULL::text
FROM heads
WHERE heads.executor <> ALL ({executors}::text[])
GROUP BY heads.executor
UNION ALL
SELECT NULL::text, 0, (SELECT ring.tenant_id FROM ring WHERE ring.place = {ring_size})
