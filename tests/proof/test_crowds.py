"""Many sessions at once: each job is claimed, moved and finished once, whatever the isolation, without a deadlock."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias, TypeVar

import psycopg
import pytest

from millpond.job import Job
from millpond.outcome import Cancelled, Completed, Failed, Released
from tests.proof.conftest import NewHands
from tests.proof.hands import Hands
from tests.proof.test_races import end
from tests.proof.test_reaper import silence, states, vanish

T = TypeVar("T")

Onlooker: TypeAlias = psycopg.Connection[Any]


ISOLATIONS = ("read committed", "repeatable read", "serializable")


@pytest.mark.parametrize(
    ("isolation", "jobs"),
    [
        ("read committed", 20_000),
        ("repeatable read", 2_000),
        ("serializable", 2_000),
        pytest.param("repeatable read", 20_000, marks=pytest.mark.storm),
        pytest.param("serializable", 20_000, marks=pytest.mark.storm),
    ],
)
def test_32_claimers_get_each_job_once(isolation: str, jobs: int, new_hands: NewHands) -> None:
    """Repeatable transactions may fail, and are tried again; no one is given a job that another has."""
    ids = new_hands().enqueue({f"tenant {n}": jobs // 20 for n in range(20)})
    claimers = [in_isolation(new_hands(), isolation) for _ in range(32)]

    def claim_all(hands: Hands) -> list[int]:
        registration = insist(lambda: hands.registration)  # claims look at the workers that it adds to
        chance, mine = random.Random(registration.number), list[int]()
        while batch := insist(lambda: hands.claim(chance.randint(1, 100))):
            mine += [job.id for job in batch]
        return mine

    with ThreadPoolExecutor(len(claimers)) as pool:
        claimed = [job_id for mine in pool.map(claim_all, claimers) for job_id in mine]
    assert sorted(claimed) == ids


@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_16_upkeepers_move_each_job_once(isolation: str, new_hands: NewHands, onlooker: Onlooker) -> None:
    """Half of the jobs are due, half are held by lost workers."""
    worker = new_hands()
    worker.enqueue({"lost": 1_000})
    worker.claim()
    worker.enqueue({"due": 1_000}, delay=3_600)
    onlooker.execute("UPDATE millpond.jobs SET scheduled_at = now() WHERE state = 'scheduled'")
    silence(onlooker, worker)
    crowd = [in_isolation(new_hands(), isolation) for _ in range(16)]

    def keep_up(hands: Hands) -> Counter[str]:
        chance, done = random.Random(hands.pid), Counter[str]()
        while True:
            done["buried"] += len(insist(hands.bury))
            promoted = insist(lambda: hands.promote(chance.randint(1, 100))).promoted
            ids = insist(partial(hands.lost, chance.randint(1, 100)))
            reaped = len(insist(partial(hands.reap, ids)))
            done.update(promoted=promoted, reaped=reaped)
            if not promoted and not ids:
                return done

    with ThreadPoolExecutor(len(crowd)) as pool:
        done = sum(pool.map(keep_up, crowd), Counter[str]())
    assert done == {"buried": 1, "promoted": 1_000, "reaped": 1_000}
    assert states(onlooker) == {"available": 2_000}


@pytest.mark.parametrize(("workers", "jobs"), [(6, 400), pytest.param(16, 20_000, marks=pytest.mark.storm)])
def test_a_crowd_that_does_everything_at_once_never_deadlocks(
    workers: int, jobs: int, new_hands: NewHands, onlooker: Onlooker
) -> None:
    """Workers that claim, settle in any order, complete in place, are lost and write late, reap and promote.

    The log is judged after the test: it would show what was moved twice, or by whom it was not to be moved.
    """
    new_hands().enqueue({f"tenant {n}": jobs // 20 for n in range(20)}, max_attempts=5)
    crowd = [new_hands() for _ in range(workers)]
    in_place = [new_hands(autocommit=False) for _ in range(workers)]

    def work(number: int) -> None:
        hands, executor = crowd[number], in_place[number]
        chance = random.Random(number)
        late: list[Job] = []
        while set(states(hands.connection)) - {"completed", "cancelled", "discarded"}:
            held = hands.claim(chance.randint(1, 30))
            chance.shuffle(held)
            mine, theirs, left = held[::3], held[1::3], held[2::3]
            hands.settle(mine, chance.choice(OUTCOMES))
            for job in theirs:
                executor.complete(job)
                end(executor, commits=chance.random() < 0.8)
            hands.settle([*late, *theirs, *left[::2]], chance.choice(OUTCOMES))
            late = left
            hands.beat()
            if chance.random() < 0.3:
                chance.choice((silence, vanish))(onlooker, hands)
                hands.register()
            hands.bury()
            hands.reap()
            hands.promote()

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(work, range(workers)))
    assert sum(states(onlooker).values()) == jobs


OUTCOMES = (Completed(), Failed(ValueError("no")), Cancelled("no need"), Released("stopping"))


def in_isolation(hands: Hands, isolation: str) -> Hands:
    """Hands whose transactions are of this isolation."""
    hands.connection.execute("SELECT set_config('default_transaction_isolation', %s, false)", [isolation])
    return hands


def insist(attempt: Callable[[], T]) -> T:
    """Try until the transaction can be serialized."""
    while True:
        try:
            return attempt()
        except psycopg.errors.SerializationFailure:
            continue
