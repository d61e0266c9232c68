-- Completes one job inside the executor's own transaction. Returns its id; nothing when the claim is lost.
UPDATE {schema}.jobs AS j
SET state = 'completed', finalized_at = pg_catalog.now(), worker_id = NULL, claim_token = NULL
WHERE j.id = {id} AND j.claim_token = {claim_token} AND j.state = 'running'
RETURNING j.id
