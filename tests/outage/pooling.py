"""A fixture for modules whose workers are all to be behind a PgBouncer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from millpond import Worker, WorkerSettings
from tests.worker.support import Store


@pytest.fixture(params=["listening", "polling"], autouse=True)
def workers_are_pooled(
    request: pytest.FixtureRequest, store: Store, pooled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every worker that is to work on the store does it through PgBouncer: listening beside it, or not at all."""
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
