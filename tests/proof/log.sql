-- What the proofs look at: a log of every move of every job, of every worker's row, and a ledger of what executors saw.
-- For test databases only. {schema} is the schema of the jobs.
CREATE SCHEMA proof;

-- Ids that neither an int4 nor a double could hold, and claim tokens as large as they ever get: what would cut one short
-- is found by every test.
ALTER SEQUENCE {schema}.jobs_id_seq RESTART WITH 9007199254740993;
ALTER SEQUENCE {schema}.workers_number_seq RESTART WITH 2147000000;

CREATE TABLE proof.moves (
    place bigserial PRIMARY KEY, -- moves of one row are in order: each waits for the row's lock
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    txid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    session text NOT NULL DEFAULT current_setting('application_name'),
    job_id bigint NOT NULL,
    old_state text, -- NULL: the job is new
    new_state text, -- NULL: the row is deleted
    old_token bigint,
    new_token bigint,
    old_worker uuid,
    new_worker uuid,
    old_attempt integer,
    new_attempt integer,
    old_max_attempts integer,
    max_attempts integer,
    scheduled_at timestamptz
);

CREATE TABLE proof.workers (
    id uuid PRIMARY KEY,
    number bigint NOT NULL,
    name text NOT NULL,
    came_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    beat_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease interval NOT NULL,
    gone_at timestamptz,
    gone_by text, -- the session that removed it
    retired boolean, -- its lease still ran: it left by itself
    held integer -- running jobs at that moment
);

CREATE TABLE proof.starts (
    place bigserial PRIMARY KEY,
    job_id bigint NOT NULL,
    attempt integer NOT NULL,
    claim_token bigint NOT NULL,
    pid integer NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz
);

CREATE TABLE proof.effects (
    job_id bigint NOT NULL -- what executors write in the transaction that completes their job
);

CREATE TABLE proof.strikes (
    pid integer NOT NULL,
    signal text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp() -- just before it was sent
);

CREATE FUNCTION proof.log_new() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO proof.moves (job_id, new_state, new_token, new_worker, new_attempt, max_attempts, scheduled_at)
    SELECT n.id, n.state, n.claim_token, n.worker_id, n.attempt, n.max_attempts, n.scheduled_at
    FROM arrived AS n;
    RETURN NULL;
END
$$;

CREATE FUNCTION proof.log_changed() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO proof.moves (
        job_id, old_state, new_state, old_token, new_token, old_worker, new_worker, old_attempt, new_attempt,
        old_max_attempts, max_attempts, scheduled_at
    )
    SELECT
        n.id, o.state, n.state, o.claim_token, n.claim_token, o.worker_id, n.worker_id, o.attempt, n.attempt,
        o.max_attempts, n.max_attempts, n.scheduled_at
    FROM before AS o
    JOIN after AS n ON n.id = o.id;
    RETURN NULL;
END
$$;

CREATE FUNCTION proof.log_gone() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO proof.moves (job_id, old_state, old_token, old_worker, old_attempt, old_max_attempts)
    SELECT o.id, o.state, o.claim_token, o.worker_id, o.attempt, o.max_attempts
    FROM departed AS o;
    RETURN NULL;
END
$$;

CREATE FUNCTION proof.log_worker() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF tg_op = 'INSERT' THEN
        INSERT INTO proof.workers (id, number, name, lease)
        VALUES (new.id, new.number, new.name, new.expires_at - new.beat_at);
    ELSIF tg_op = 'UPDATE' THEN
        UPDATE proof.workers SET beat_at = clock_timestamp() WHERE id = new.id;
    ELSE
        UPDATE proof.workers
        SET
            gone_at = clock_timestamp(),
            gone_by = current_setting('application_name'),
            retired = old.expires_at >= now(),
            held = (SELECT count(*) FROM {schema}.jobs AS j WHERE j.state = 'running' AND j.worker_id = old.id)
        WHERE id = old.id;
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER proof_new AFTER INSERT ON {schema}.jobs
REFERENCING NEW TABLE AS arrived FOR EACH STATEMENT EXECUTE FUNCTION proof.log_new();

CREATE TRIGGER proof_changed AFTER UPDATE ON {schema}.jobs
REFERENCING OLD TABLE AS before NEW TABLE AS after FOR EACH STATEMENT EXECUTE FUNCTION proof.log_changed();

CREATE TRIGGER proof_gone AFTER DELETE ON {schema}.jobs
REFERENCING OLD TABLE AS departed FOR EACH STATEMENT EXECUTE FUNCTION proof.log_gone();

CREATE TRIGGER proof_worker AFTER INSERT OR UPDATE OR DELETE ON {schema}.workers
FOR EACH ROW EXECUTE FUNCTION proof.log_worker();
