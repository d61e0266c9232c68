-- Removes workers that have been silent for longer than their lease. One that is beating right now is left alone: its
-- row is locked. A buried worker's next beat finds no row, and tells it to stop.
WITH silent AS MATERIALIZED (
    SELECT w.id
    FROM {schema}.workers AS w
    WHERE w.expires_at < now()
    ORDER BY w.id
    LIMIT 100
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {schema}.workers AS w
WHERE w.id = ANY (ARRAY(SELECT silent.id FROM silent))
RETURNING w.id, w.name
