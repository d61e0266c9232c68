-- Says that a worker lives, for one more lease. Nothing is returned when it was buried: it must stop.
UPDATE {schema}.workers AS w
SET beat_at = now(), expires_at = now() + make_interval(secs => {lease}::double precision)
WHERE w.id = {id}
RETURNING w.number
