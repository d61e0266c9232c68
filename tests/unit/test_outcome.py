"""What an outcome makes of the row."""

from __future__ import annotations

import pytest

from millpond.errors import TaskTimeout
from millpond.job import MOVES, ClaimToken, Job, JobId, JobState
from millpond.outcome import Cancelled, Completed, Failed, Outcome, Released, Settlement, settlement


def job(attempt: int = 1, max_attempts: int = 3) -> Job:
    return Job(
        id=JobId(7),
        tenant="t",
        executor="e",
        args="{}",
        attempt=attempt,
        max_attempts=max_attempts,
        priority=1,
        scheduled_epoch=0.0,
        timeout=None,
        metadata=None,
        queue="default",
        claim_token=ClaimToken(9),
    )


def settled(outcome: Outcome, attempt: int = 1, max_attempts: int = 3) -> Settlement:
    return settlement(job(attempt, max_attempts), outcome, backoff=lambda n: n * 10.0, worker="w")


def test_a_success_completes() -> None:
    assert settled(Completed()) == Settlement(7, 9, "completed")


def test_a_failure_waits_for_its_backoff_and_the_last_one_discards() -> None:
    first = settled(Failed(ValueError("no")), attempt=2)
    assert (first.state, first.delay, first.refund) == ("retryable", 20.0, 0)
    assert first.error is not None
    assert {"attempt": 2, "worker": "w", "type": "ValueError", "message": "no"}.items() <= first.error.items()
    last = settled(Failed(TaskTimeout(5)), attempt=3)
    assert (last.state, last.delay) == ("discarded", None)
    assert last.error is not None
    assert last.error["type"] == "TaskTimeout"


@pytest.mark.parametrize("attempt", [1, 3])
def test_what_is_handed_back_is_not_charged_even_on_its_last_attempt(attempt: int) -> None:
    assert settled(Released("stopping"), attempt) == Settlement(7, 9, "available", refund=1)


def test_a_cancelled_job_says_why() -> None:
    outcome = settled(Cancelled("asked to"))
    assert (outcome.state, outcome.refund) == ("cancelled", 0)
    assert outcome.error is not None
    assert outcome.error["message"] == "asked to"


@pytest.mark.parametrize(
    "outcome", [Completed(), Failed(ValueError()), Released("x"), Cancelled("x")], ids=lambda o: type(o).__name__
)
@pytest.mark.parametrize("attempt", [1, 3])
def test_every_settlement_is_a_legal_move(outcome: Outcome, attempt: int) -> None:
    assert JobState(settled(outcome, attempt).state) in MOVES[JobState.RUNNING]


def test_final_states_never_move() -> None:
    assert {state for state in JobState if state.final} == {state for state in JobState if not MOVES[state]}
