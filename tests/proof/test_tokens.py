"""Claim tokens: however often one row is claimed and given back, none comes twice, and none but the last opens."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import psycopg
import pytest

from millpond.job import ClaimToken, JobId
from millpond.outcome import Settlement
from millpond.store import claims, upkeep
from millpond.store.statement import Statement
from tests.proof.hands import Hands
from tests.proof.test_reaper import row, vanish

BATCH = 500
"""Cycles that are sent without waiting for an answer."""

BOOT = 2_000
"""Cycles of one boot of the worker."""


@pytest.mark.parametrize("cycles", [2_000, pytest.param(100_000, marks=pytest.mark.storm)])
def test_no_token_of_a_row_comes_twice(cycles: int, hands: Hands, onlooker: psycopg.Connection[Any]) -> None:
    (job_id,) = hands.enqueue({"a": 1}, max_attempts=32_767)
    tokens: list[ClaimToken] = []
    for start in range(0, cycles, BATCH):
        if start % BOOT == 0:
            hands.register()
        with hands.connection.pipeline() as pipeline:
            for token, statements in islice(_cycles(hands, job_id), BATCH):
                tokens.append(token)
                for statement in statements:
                    hands.connection.execute(statement.text(), statement.params)
                    pipeline.sync()  # the end of its transaction
        if (start + BATCH) % BOOT == 0:
            tokens += [job.claim_token for job in hands.claim()]
            vanish(onlooker, hands)
            hands.reap()
            onlooker.execute("VACUUM millpond.jobs")  # a server for tests does not do so by itself
    claimed = "SELECT count(*), count(DISTINCT new_token) FROM proof.moves WHERE new_state = 'running'"
    assert onlooker.execute(claimed).fetchone() == (len(tokens), len(set(tokens)))
    assert len(set(tokens)) == len(tokens) >= cycles

    hands.register()
    (job,) = hands.claim()
    before = row(onlooker, job_id)
    late = [Settlement(job_id, token, "completed") for token in tokens]
    assert len(hands.run(claims.settle(hands.schema, late))) == len(tokens)
    assert row(onlooker, job_id) == before
    assert job.attempt == row(onlooker, job_id)["attempt"]


def _cycles(hands: Hands, job_id: JobId) -> Iterator[tuple[ClaimToken, list[Statement[Any]]]]:
    """The statements that claim a row and give it back, now one way, now another."""
    while True:
        for ways in (_handed_back, _handed_back, _handed_back, _failed_and_due_at_once):
            token = hands.registration.next_token()
            yield token, [hands.claiming(1, token=token), *ways(hands, job_id, token)]


def _handed_back(hands: Hands, job_id: JobId, token: ClaimToken) -> list[Statement[Any]]:
    return [claims.settle(hands.schema, [Settlement(job_id, token, "available", refund=1)])]


def _failed_and_due_at_once(hands: Hands, job_id: JobId, token: ClaimToken) -> list[Statement[Any]]:
    failed = Settlement(job_id, token, "retryable", delay=0.0)
    return [claims.settle(hands.schema, [failed]), upkeep.promote(hands.schema, size=1)]
