"""What is true of a worker is true of one behind a PgBouncer: some of its tests, again. `make storm` runs them all."""

from __future__ import annotations

from tests.outage.pooling import workers_are_pooled
from tests.worker.test_worker import (
    test_a_failing_job_is_retried_and_then_discarded_with_its_history,
    test_a_scheduled_job_runs_when_it_is_due_and_not_before,
    test_effects_and_completion_commit_together,
    test_every_kind_of_executor_gets_its_typed_args,
    test_hurry_cancels_what_runs_and_hands_it_back_uncharged_even_on_its_last_attempt,
)

__all__ = [
    "test_a_failing_job_is_retried_and_then_discarded_with_its_history",
    "test_a_scheduled_job_runs_when_it_is_due_and_not_before",
    "test_effects_and_completion_commit_together",
    "test_every_kind_of_executor_gets_its_typed_args",
    "test_hurry_cancels_what_runs_and_hands_it_back_uncharged_even_on_its_last_attempt",
    "workers_are_pooled",
]
