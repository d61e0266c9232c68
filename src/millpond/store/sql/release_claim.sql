-- Gives back what a claim took whose answer never came: none of it was started. Returns how many.
WITH released AS (
    UPDATE {schema}.jobs AS j
    SET state = 'available', attempt = j.attempt - 1, worker_id = NULL, claim_token = NULL
    WHERE j.state = 'running' AND j.worker_id = {worker_id} AND j.claim_token = {claim_token}
    RETURNING j.id
)
SELECT count(*) FROM released
