"""What is true of a worker is true of one behind a PgBouncer, listening beside it or polling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from millpond import Worker, WorkerSettings
from tests.worker.support import Store
from tests.worker.test_worker import *  # noqa: F403 - to be run here, too

AMONG_THE_QUICK = (
    "test_a_failing_job_is_retried_and_then_discarded_with_its_history",
    "test_a_scheduled_job_runs_when_it_is_due_and_not_before",
    "test_a_worker_that_lost_its_lease_drops_what_it_runs_and_goes_on",
    "test_effects_and_completion_commit_together",
    "test_every_kind_of_executor_gets_its_typed_args",
    "test_stop_lets_running_jobs_end_and_hands_back_what_has_not_started",
)
"""Those that are always run here; `make storm` runs all."""


@pytest.fixture(params=["listening", "polling"], autouse=True)
def workers_are_pooled(
    request: pytest.FixtureRequest, store: Store, pooled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every worker that is to work on the store does it through PgBouncer."""
    init = Worker.__init__

    def through(worker: Worker, dsn: str, *arguments: Any, settings: WorkerSettings | None = None, **rest: Any) -> None:
        settings = settings or WorkerSettings()
        if dsn == store.database.dsn:
            if request.param == "listening":
                settings = replace(settings, listen_dsn=dsn)
            else:
                settings = replace(settings, listen=False, poll_interval=min(settings.poll_interval, 0.05))
            dsn = pooled
        init(worker, dsn, *arguments, settings=settings, **rest)

    monkeypatch.setattr(Worker, "__init__", through)
    monkeypatch.setattr("tests.worker.test_worker.sessions", lambda store: [])  # those left are PgBouncer's


for _name, _test in list(globals().items()):
    if _name.startswith("test_") and _name not in AMONG_THE_QUICK:
        globals()[_name] = pytest.mark.storm(_test)
