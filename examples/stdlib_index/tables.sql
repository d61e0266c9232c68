-- The application's own table: every file it knows, and what was found in it.
-- millpond's tables are in a schema of their own; one transaction writes to both.
CREATE SCHEMA IF NOT EXISTS stdlib_index;

CREATE TABLE IF NOT EXISTS stdlib_index.files (
    path text PRIMARY KEY,
    package text NOT NULL,
    modified_at timestamptz NOT NULL,
    job_id bigint NOT NULL,                  -- the job that reads the file as it is now
    times_read integer NOT NULL DEFAULT 0,   -- by that job: 1 once it is completed, and never 2
    read_at timestamptz,
    lines integer,
    functions integer,
    classes integer,
    documented integer                       -- of the module, its functions and its classes: those with a docstring
);
