"""A worker's process that is told to stop while there is no database."""

from __future__ import annotations

import pytest

from millpond.testing.database import Database
from millpond.testing.proxy import Proxy
from tests.acceptance.test_processes import DEADLINE, eventually, process
from tests.worker.support import Store


@pytest.mark.parametrize("outage", ["refused", pytest.param("black hole", marks=pytest.mark.storm)])
def test_sigterm_during_an_outage_ends_the_process(store: Store, proxy: Proxy, outage: str) -> None:
    store.execute("CREATE TABLE ledger (job_id bigint, attempt integer, pid integer)")
    store.enqueue_many("note", {"a": 10})
    with process(Store(Database(proxy.dsn)), "--log-level", "error") as worker:
        eventually(lambda: store.states() == {"completed": 10}, worker)
        if outage == "refused":
            proxy.refuse()
        else:
            proxy.block()
        worker.terminate()
        assert worker.wait(DEADLINE) == 0  # nothing was cut short, and nothing is unwritten
    assert len(store.workers()) == 1  # whose lease runs out
