-- The workers that hold a lease, or held one that nobody has buried yet.
SELECT
    w.id::text,
    w.name,
    w.queues,
    w.executors,
    w.started_at,
    extract(epoch FROM now() - w.beat_at)::double precision AS beat_age,
    w.expires_at >= now() AS alive
FROM {schema}.workers AS w
ORDER BY w.started_at, w.id
