-- Sets up a session of ours: deadlines of its own, the isolation that the statements are written for, and an end to what
-- nobody waits for any more, where the server can notice that.
--
-- It is ours when its server process is the one that the connection was told of. A pooler takes another for each
-- transaction, and there nothing may be left behind: no row, and nothing is set.
SELECT
    set_config('statement_timeout', {statement_timeout}, false),
    set_config('idle_in_transaction_session_timeout', {idle_timeout}, false),
    set_config('default_transaction_isolation', 'read committed', false),
    CASE WHEN version() ~ 'linux|darwin|freebsd' THEN set_config('client_connection_check_interval', '1s', false) END
WHERE pg_backend_pid() = {pid}::integer
