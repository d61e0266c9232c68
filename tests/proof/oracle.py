"""The laws that hold after every test: a log of all that moved is kept in the test's database, and judged at its end.

Each law is a query for offenders. Jobs that a test changed behind the product's back are not judged: moves are the
product's when its own sessions made them (they are named `millpond …`), or when they complete a running job, which
executors do in their own transactions.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from millpond.execution import Execution
from millpond.job import MOVES, Job
from millpond.testing.database import Database

SESSION: Final = "millpond proof"
"""The name of a test's session that does what a worker would do."""

_LOG: Final = Path(__file__).with_name("log.sql")

_JUDGED: Final = """
WITH judged AS (
    SELECT m.*, m.old_state IS NOT NULL AND m.new_state IS NOT NULL AS changed
    FROM proof.moves AS m
    WHERE NOT EXISTS (
        SELECT FROM proof.moves AS meddled
        WHERE meddled.job_id = m.job_id
            AND meddled.old_state IS NOT NULL
            AND meddled.session NOT LIKE 'millpond %%'
            AND NOT (
                meddled.old_state = 'running' AND meddled.new_state = 'completed'
                AND meddled.old_attempt = meddled.new_attempt
            )
    )
)
"""

LAWS: Final[Mapping[str, str]] = {
    "a job moves as job.MOVES says": """
        SELECT job_id, old_state, new_state, session FROM judged
        WHERE changed AND old_state <> new_state AND (old_state || ' > ' || new_state) <> ALL (%(moves)s)
    """,
    "a final state is never left, nor written to again": """
        SELECT job_id, old_state, new_state, session FROM judged
        WHERE changed AND old_state = ANY (%(final)s)
    """,
    "a claim token comes to a job once": """
        SELECT job_id, new_token, count(*) AS times FROM judged
        WHERE changed AND new_token IS NOT NULL AND new_token IS DISTINCT FROM old_token
        GROUP BY job_id, new_token HAVING count(*) > 1
    """,
    "a claim token is one worker's": """
        SELECT new_token, array_agg(DISTINCT new_worker) AS workers FROM judged
        WHERE new_token IS NOT NULL GROUP BY new_token HAVING count(DISTINCT new_worker) > 1
    """,
    "a running job changes hands only through another state": """
        SELECT job_id, old_token, new_token, session FROM judged
        WHERE old_state = 'running' AND new_state = 'running'
            AND (old_token <> new_token OR old_worker <> new_worker)
    """,
    "a claim counts one attempt, and no more than allowed": """
        SELECT job_id, old_attempt, new_attempt, max_attempts FROM judged
        WHERE changed AND new_state = 'running' AND old_state <> 'running'
            AND (new_attempt <> old_attempt + 1 OR new_attempt > max_attempts)
    """,
    "only handing back, or putting off, gives an attempt back, and only its own": """
        SELECT job_id, old_state, new_state, old_attempt, new_attempt FROM judged
        WHERE changed AND NOT (new_state = 'running' AND old_state <> 'running') AND new_attempt <> old_attempt
            AND NOT (
                old_state = 'running' AND new_state IN ('available', 'scheduled') AND new_attempt = old_attempt - 1
            )
    """,
    "nothing raises max_attempts": """
        SELECT job_id, old_max_attempts, max_attempts FROM judged WHERE changed AND max_attempts > old_max_attempts
    """,
    "nothing becomes available before it is due": """
        SELECT job_id, scheduled_at, at FROM judged
        WHERE changed AND old_state IN ('scheduled', 'retryable') AND new_state = 'available' AND scheduled_at > at
    """,
    "an executor starts under a claim, once": """
        SELECT s.job_id, s.attempt, s.claim_token, 0 AS starts FROM proof.starts AS s
        WHERE s.job_id IN (SELECT judged.job_id FROM judged) AND NOT EXISTS (
            SELECT FROM judged AS m
            WHERE m.job_id = s.job_id AND m.new_state = 'running' AND m.new_token = s.claim_token
                AND m.new_attempt = s.attempt
        )
        UNION ALL
        SELECT s.job_id, s.attempt, s.claim_token, count(*) FROM proof.starts AS s
        GROUP BY s.job_id, s.attempt, s.claim_token HAVING count(*) > %(runs)s
    """,
    "a job starts at most max_attempts times, apart from attempts that were given back": """
        SELECT s.job_id, count(DISTINCT s.claim_token) AS starts, min(m.max_attempts) AS max_attempts
        FROM proof.starts AS s
        JOIN judged AS m ON m.job_id = s.job_id AND m.new_token = s.claim_token AND m.old_state <> 'running'
        WHERE NOT EXISTS (
            SELECT FROM judged AS back
            WHERE back.job_id = s.job_id AND back.old_token = s.claim_token AND back.new_attempt < back.old_attempt
        )
        GROUP BY s.job_id HAVING count(DISTINCT s.claim_token) > min(m.max_attempts)
    """,
    "a worker that leaves by itself holds nothing": """
        SELECT w.id, w.name, w.held FROM proof.workers AS w
        WHERE w.held > 0 AND w.gone_by LIKE 'millpond %%' AND w.retired
            AND w.id IN (SELECT j.new_worker FROM judged AS j)
    """,
    "no job stays with a lost worker for long while another could take it back": """
        SELECT j.id, j.worker_id, lost.gone_at FROM {schema}.jobs AS j
        JOIN proof.workers AS lost ON lost.id = j.worker_id
        WHERE j.state = 'running' AND j.id IN (SELECT judged.job_id FROM judged) AND EXISTS (
            SELECT FROM proof.workers AS other
            WHERE other.id <> lost.id
                AND other.beat_at - greatest(lost.gone_at, other.came_at)
                    > 2 * greatest(interval '1 s', other.lease / 2) + interval '5 s'
        )
    """,
    "nobody deadlocks": """
        SELECT d.deadlocks FROM pg_catalog.pg_stat_database AS d
        WHERE d.datname = current_database() AND d.deadlocks > %(deadlocks)s
    """,
    "no session stays idle in a transaction": """
        SELECT a.pid, a.application_name, a.query FROM pg_catalog.pg_stat_activity AS a
        WHERE a.datname = current_database() AND a.state LIKE 'idle in transaction%%'
            AND a.state_change < clock_timestamp() - make_interval(secs => %(idle)s)
    """,
}


class LawBroken(AssertionError):
    """The log shows what must never happen."""


class Oracle:
    """Keeps the log of one test database, and judges it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.deadlocks = 0
        """How many a test provokes on purpose."""
        self.runs = 1
        """How often one claim may start an executor: more only for a pool that retries by itself."""
        self.idle = 1.0
        """Seconds that a session may stay idle in a transaction."""
        self.asleep = False
        """Whether a test breaks laws on purpose, so that nothing is to be judged."""
        self._starts: list[tuple[int, int, int, int]] = []

    def install(self) -> None:
        """Begin to log."""
        with self.connect() as connection:
            connection.execute(sql.SQL(_LOG.read_text("utf-8")).format(schema=self._schema))

    def saw(self, job: Job) -> None:
        """An executor starts, in this process."""
        self._starts.append((job.id, job.attempt, job.claim_token, os.getpid()))

    def offenders(self) -> dict[str, list[dict[str, Any]]]:
        """The laws that were broken, each with some of the rows that show it."""
        params = {
            "moves": [f"{old} > {new}" for old, news in MOVES.items() for new in news],
            "final": [state.value for state in MOVES if state.final],
            "deadlocks": self.deadlocks,
            "runs": self.runs,
            "idle": self.idle,
        }
        with self.connect() as connection, connection.cursor(row_factory=dict_row) as cursor:
            self._write_starts(cursor)
            cursor.execute("ANALYZE proof.moves, proof.starts")
            found = {law: cursor.execute(self._composed(query), params).fetchmany(5) for law, query in LAWS.items()}
        return {law: rows for law, rows in found.items() if rows}

    def judge(self) -> None:
        """Raises LawBroken, with the offenders."""
        if not self.asleep and (found := self.offenders()):
            raise LawBroken("\n".join(f"{law}: {row}" for law, rows in found.items() for row in rows))

    def connect(self) -> psycopg.Connection[Any]:
        """A session of the product, as far as the laws are concerned."""
        return self._database.connect(application_name=SESSION)

    @property
    def _schema(self) -> sql.Identifier:
        return sql.Identifier(self._database.schema)

    def _composed(self, query: str) -> sql.Composed:
        return sql.SQL(_JUDGED + query).format(schema=self._schema)

    def _write_starts(self, cursor: psycopg.Cursor[Any]) -> None:
        starts, self._starts = self._starts, []
        cursor.executemany(
            "INSERT INTO proof.starts (job_id, attempt, claim_token, pid) VALUES (%s, %s, %s, %s)", starts
        )


@contextlib.contextmanager
def proven(database: Database) -> Iterator[Oracle]:
    """Judge what the body does to the database: by a worker in this process, in others, or by statements alone."""
    oracle = Oracle(database)
    oracle.install()
    with pytest.MonkeyPatch.context() as patch:
        _note_starts(patch, oracle)
        yield oracle
    oracle.judge()


def _note_starts(patch: pytest.MonkeyPatch, oracle: Oracle) -> None:
    """Have every execution noted: one that is called here, and one that is sent to a child process."""
    call, reduce = Execution.__call__, Execution.__reduce__

    def called(execution: Execution, signals: Any) -> object:
        oracle.saw(execution.job)
        return call(execution, signals)

    def sent(execution: Execution) -> Any:
        oracle.saw(execution.job)
        return reduce(execution)

    patch.setattr(Execution, "__call__", called)
    patch.setattr(Execution, "__reduce__", sent)
