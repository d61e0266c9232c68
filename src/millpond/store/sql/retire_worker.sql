-- Takes a worker's own row away: it has stopped, and holds nothing.
DELETE FROM {schema}.workers AS w WHERE w.id = {id} RETURNING w.number
