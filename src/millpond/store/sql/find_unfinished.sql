-- Whether anything is left to do in these queues: a job that this worker could claim, one that runs somewhere, or a retry
-- that waits. Jobs scheduled for later do not count.
SELECT
    EXISTS (
        SELECT FROM {schema}.jobs AS j
        WHERE j.state = 'available' AND j.queue = ANY ({queues}::text[]) AND j.executor = ANY ({executors}::text[])
    )
    OR EXISTS (
        SELECT FROM {schema}.jobs AS j WHERE j.state = 'running' AND j.queue = ANY ({queues}::text[])
    )
    OR EXISTS (
        SELECT FROM {schema}.jobs AS j WHERE j.state = 'retryable' AND j.queue = ANY ({queues}::text[])
    )
