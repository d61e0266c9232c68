-- Takes the turn of a duty when it is due, and sets the next one. Nothing when it is not due, or when another worker is
-- at it right now. To be run in the same transaction as the work.
WITH due AS MATERIALIZED (
    SELECT d.name
    FROM {schema}.duties AS d
    WHERE d.name = {name} AND d.next_at <= now()
    FOR UPDATE SKIP LOCKED
)
UPDATE {schema}.duties AS d
SET next_at = now() + make_interval(secs => {every}::double precision)
WHERE d.name = ANY (ARRAY(SELECT due.name FROM due))
RETURNING d.name
