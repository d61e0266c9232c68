"""The life of jobs against a plain model: any statements, by any workers, in any order; compared after each."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, get_args

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from millpond.job import MOVES, Job, JobState
from millpond.outcome import Cancelled, Completed, Failed, Outcome, Released
from millpond.testing.database import Database
from tests.proof.hands import Hands
from tests.proof.mutation import mutated
from tests.proof.oracle import SESSION, Oracle

HOUR: Final = 3_600.0

TENANTS: Final = st.sampled_from("abc")

OUTCOMES: Final[tuple[Outcome, ...]] = (
    Completed(),
    Failed(ValueError("no")),
    Cancelled("no need"),
    Released("stopping"),
)


@dataclass
class ModelJob:
    """What a row should say."""

    tenant: str
    max_attempts: int
    state: JobState
    attempt: int = 0
    token: int | None = None
    worker: object = None
    errors: list[str] = field(default_factory=list)
    due: bool = True

    def move(self, state: JobState) -> None:
        assert state in MOVES[self.state]
        self.state = state
        if state is not JobState.RUNNING:
            self.token = self.worker = None

    def settle(self, outcome: Outcome) -> None:
        match outcome:
            case Completed():
                self.move(JobState.COMPLETED)
            case Cancelled():
                self.move(JobState.CANCELLED)
                self.errors.append("Cancelled")
            case Released():
                self.hand_back()
            case Failed(error):
                self.move(JobState.DISCARDED if self.attempt >= self.max_attempts else JobState.RETRYABLE)
                self.errors.append(type(error).__name__)
                self.due = False

    def hand_back(self) -> None:
        self.move(JobState.AVAILABLE)
        self.attempt -= 1

    def lose_worker(self) -> None:
        self.move(JobState.DISCARDED if self.attempt >= self.max_attempts else JobState.AVAILABLE)
        self.errors.append("WorkerLost")


class Row(Enum):
    """What became of a worker's row."""

    LIVE = "live"
    SILENT = "silent"
    GONE = "gone"


@dataclass
class ModelWorker:
    """A worker, and every job that it was ever given: it may write about any of them, at any time."""

    hands: Hands
    row: Row = Row.LIVE
    known: list[Job] = field(default_factory=list)


class JobLife(RuleBasedStateMachine):
    """Statements of the store, as workers send them, and sometimes should not."""

    def __init__(self, database: Database, connection: psycopg.Connection[Any]) -> None:
        super().__init__()
        self._database = database
        self._connection = connection
        self._hands = Hands(database, connection)
        self._jobs: dict[int, ModelJob] = {}
        self._workers: list[ModelWorker] = []
        connection.execute("TRUNCATE millpond.jobs, millpond.workers")  # ids go on: the log stays readable

    # ── what happens ──

    @initialize(tenants=st.lists(TENANTS, max_size=5))
    def begin(self, tenants: list[str]) -> None:
        self.register()
        for tenant in tenants:
            self.enqueue(tenant, 2, later=False)

    @rule(tenant=TENANTS, max_attempts=st.integers(1, 3), later=st.booleans())
    def enqueue(self, tenant: str, max_attempts: int, later: bool) -> None:
        (job_id,) = self._hands.enqueue({tenant: 1}, max_attempts=max_attempts, delay=HOUR if later else None)
        state = JobState.SCHEDULED if later else JobState.AVAILABLE
        self._jobs[job_id] = ModelJob(tenant, max_attempts, state, due=not later)

    @rule()
    def register(self) -> None:
        hands = Hands(self._database, self._connection)
        hands.backoff = HOUR
        hands.register()
        self._workers.append(ModelWorker(hands))

    @rule(data=st.data(), size=st.integers(1, 6))
    def claim(self, data: st.DataObject, size: int) -> None:
        worker = self._any_worker(data)
        jobs = worker.hands.claim(size)
        waiting = {job_id: job for job_id, job in self._jobs.items() if job.state is JobState.AVAILABLE}
        lines = Counter(job.tenant for job in waiting.values())
        share = math.ceil(size / len(lines)) if lines else 0
        fair = min(size, sum(min(share, line) for line in lines.values()))
        assert len(jobs) == (fair if worker.row is not Row.GONE else 0)
        for job in jobs:
            model = waiting[job.id]
            model.move(JobState.RUNNING)
            model.attempt += 1
            model.token, model.worker = job.claim_token, worker.hands.worker_id
            assert (job.attempt, job.max_attempts, job.tenant) == (model.attempt, model.max_attempts, model.tenant)
        worker.known += jobs

    @precondition(lambda self: self._known())
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES), how_many=st.integers(1, 4))
    def settle(self, data: st.DataObject, outcome: Outcome, how_many: int) -> None:
        """In time or too late, of several claims, of several workers in one statement; never twice of one job."""
        known = st.lists(st.sampled_from(self._known()), min_size=1, max_size=how_many, unique_by=lambda job: job.id)
        jobs = data.draw(known, label="jobs")
        stale = self._any_worker(data).hands.settle(jobs, outcome)
        late = [job.id for job in jobs if not self._held(job)]
        for job in jobs:
            if self._held(job):
                self._jobs[job.id].settle(outcome)
        assert sorted(stale) == sorted(late)

    @precondition(lambda self: self._known())
    @rule(data=st.data(), commits=st.booleans())
    def complete_in_place(self, data: st.DataObject, commits: bool) -> None:
        job = data.draw(st.sampled_from(self._known()), label="job")
        with self._connection.transaction(force_rollback=not commits):
            done = self._hands.complete(job)
        assert done == self._held(job)
        if done and commits:
            self._jobs[job.id].move(JobState.COMPLETED)

    @precondition(lambda self: self._known())
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """The answer of this claim is taken for lost."""
        worker = data.draw(st.sampled_from([each for each in self._workers if each.known]), label="worker")
        token = data.draw(st.sampled_from(worker.known), label="claim").claim_token
        held = [job for job in self._jobs.values() if job.token == token]
        assert worker.hands.release(token) == len(held)
        for job in held:
            job.hand_back()

    @rule()
    def promote(self) -> None:
        waiting = [job for job in self._jobs.values() if job.state in (JobState.SCHEDULED, JobState.RETRYABLE)]
        due = [job for job in waiting if job.due]
        promotion = self._hands.promote()
        assert promotion.promoted == len(due)
        assert (promotion.next_due is not None) == (len(due) < len(waiting))
        for job in due:
            job.move(JobState.AVAILABLE)

    @rule()
    def time_passes(self) -> None:
        """Whatever waits is due."""
        waiting = "state IN ('scheduled', 'retryable')"
        self._connection.execute(f"UPDATE millpond.jobs SET scheduled_at = now() WHERE {waiting}")
        for job in self._jobs.values():
            job.due = True

    @rule(data=st.data(), row=st.sampled_from([Row.SILENT, Row.GONE]))
    def lose_worker(self, data: st.DataObject, row: Row) -> None:
        """It is killed, and its lease runs out; or somebody has removed its row."""
        worker = self._any_worker(data)
        change = "UPDATE millpond.workers SET expires_at = now() - interval '1 s'"
        if row is Row.GONE:
            change = "DELETE FROM millpond.workers"
        with self._database.connect() as meddler:
            meddler.execute(f"{change} WHERE id = %s", [worker.hands.worker_id])
        worker.row = row if worker.row is not Row.GONE else Row.GONE

    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        worker = self._any_worker(data)
        assert worker.hands.beat() == (worker.row is not Row.GONE)
        if worker.row is Row.SILENT:
            worker.row = Row.LIVE

    @rule()
    def bury(self) -> None:
        silent = [worker for worker in self._workers if worker.row is Row.SILENT]
        assert sorted(self._hands.bury()) == sorted(worker.hands.worker_id for worker in silent)
        for worker in silent:
            worker.row = Row.GONE

    @rule(size=st.integers(1, 5))
    def reap(self, size: int) -> None:
        gone = {worker.hands.worker_id for worker in self._workers if worker.row is Row.GONE}
        lost = [job_id for job_id, job in self._jobs.items() if job.worker in gone]
        found = self._hands.lost(size)
        assert len(found) == min(size, len(lost))
        assert set(found) <= set(lost)
        reaped = self._hands.reap(found)
        for each in reaped:
            self._jobs[each.id].lose_worker()
            assert each.state is self._jobs[each.id].state
        assert sorted(each.id for each in reaped) == sorted(found)

    @rule(data=st.data())
    def lose_worker_and_run_its_jobs_elsewhere(self, data: st.DataObject) -> None:
        """What takes four rules in a row otherwise, and leaves a worker that knows of jobs that others run."""
        self.lose_worker(data, Row.GONE)
        self.reap(100)
        self.register()
        self.claim(data, 100)

    # ── what must be true after each ──

    @invariant()
    def rows_are_as_the_model_says(self) -> None:
        rows = self._connection.execute(
            "SELECT id, state, attempt, claim_token, worker_id, finalized_at IS NOT NULL,"
            " coalesce(jsonb_path_query_array(errors, '$[*].type'), '[]') FROM millpond.jobs ORDER BY id"
        ).fetchall()
        assert rows == [
            (job_id, job.state, job.attempt, job.token, job.worker, job.state.final, job.errors)
            for job_id, job in self._jobs.items()
        ]

    @invariant()
    def workers_are_as_the_model_says(self) -> None:
        rows = self._connection.execute("SELECT id, expires_at < now() FROM millpond.workers").fetchall()
        there = {
            worker.hands.worker_id: worker.row is Row.SILENT for worker in self._workers if worker.row is not Row.GONE
        }
        assert dict(rows) == there

    def _any_worker(self, data: st.DataObject) -> ModelWorker:
        return data.draw(st.sampled_from(self._workers), label="worker")

    def _known(self) -> list[Job]:
        return [job for worker in self._workers for job in worker.known]

    def _held(self, job: Job) -> bool:
        return self._jobs[job.id].token == job.claim_token


def live(database: Database, examples: int, *phases: Phase) -> None:
    """Let many machines live, each from an empty table on. Raises what the model does not expect."""
    with contextlib.closing(database.connect(autocommit=True, application_name=SESSION)) as connection:

        class Here(JobLife):
            def __init__(self) -> None:
                super().__init__(database, connection)

        run_state_machine_as_test(
            Here,
            settings=settings(
                max_examples=examples,
                stateful_step_count=40,
                deadline=None,
                database=None,
                phases=phases or tuple(Phase),
                suppress_health_check=list(HealthCheck),
            ),
        )


@pytest.mark.parametrize("examples", [30, pytest.param(1_000, marks=pytest.mark.storm)])
def test_jobs_live_as_the_model_says(examples: int, database: Database) -> None:
    live(database, examples)


DUE: Final = "WHERE j.state IN ('scheduled', 'retryable') AND j.scheduled_at <= now() AND j.id"
LAST: Final = "CASE WHEN j.attempt >= j.max_attempts THEN 'discarded'"

MUTANTS: Final[dict[str, tuple[str, str, str]]] = {
    "claims that do not count": ("claim_jobs", "attempt = j.attempt + 1", "attempt = j.attempt"),
    "burials of the living": ("bury_workers", "w.expires_at < now()", "true"),
    "reaping from the living": (
        "find_lost_jobs",
        "WHERE NOT EXISTS (SELECT FROM {schema}.workers AS w WHERE w.id = o.worker_id)",
        "",
    ),
}
"""What a few short lives show."""

SUBTLE_MUTANTS: Final[dict[str, tuple[str, str, str]]] = {
    "settlements by anybody": ("settle_jobs", " AND j.claim_token = o.claim_token", ""),
    "hand-backs that count": ("settle_jobs", "attempt = j.attempt - o.refund", "attempt = j.attempt"),
    "retries at once": ("settle_jobs", "now() + make_interval(secs => o.delay)", "now()"),
    "claims by workers without a row": (
        "claim_jobs",
        " AND EXISTS (SELECT FROM {schema}.workers AS w WHERE w.id = {worker_id})",
        "",
    ),
    "releases of all claims": ("release_claim", " AND j.claim_token = {claim_token}", ""),
    "releases that count": ("release_claim", "attempt = j.attempt - 1, ", ""),
    "completions by anybody": ("complete_job", " AND j.claim_token = {claim_token}", ""),
    "promotions of what is not due": ("promote_jobs", DUE, DUE.replace(" AND j.scheduled_at <= now()", "")),
    "one attempt more": ("reap_jobs", LAST, LAST.replace(">=", ">")),
    "beats that do not prolong": (
        "beat_worker",
        ", expires_at = now() + make_interval(secs => {lease}::double precision)",
        "",
    ),
}
"""What takes a longer search."""


@pytest.mark.parametrize(
    "mutant", [*MUTANTS, *(pytest.param(each, marks=pytest.mark.storm) for each in SUBTLE_MUTANTS)]
)
def test_the_model_finds(mutant: str, database: Database, oracle: Oracle) -> None:
    oracle.asleep = True
    name, right, wrong = (MUTANTS | SUBTLE_MUTANTS)[mutant]
    with mutated(name, (right, wrong)), pytest.raises((AssertionError, psycopg.errors.CheckViolation)):
        live(database, 2_000, Phase.generate)


def test_the_model_knows_every_outcome() -> None:
    assert {type(outcome) for outcome in OUTCOMES} == set(get_args(Outcome))
