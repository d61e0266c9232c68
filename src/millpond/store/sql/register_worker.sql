-- Announces a worker. Its number, never given twice, is the high half of every claim token it will make.
INSERT INTO {schema}.workers (id, expires_at, name, queues, executors)
VALUES (
    {id}, now() + make_interval(secs => {lease}::double precision), {name}, {queues}::text[], {executors}::text[]
)
RETURNING number
