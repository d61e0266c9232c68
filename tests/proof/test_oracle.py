"""The oracle itself: it sees every law broken, and does not cry over what tests do behind the product's back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import psycopg
import pytest

from millpond.outcome import Completed, Failed
from millpond.testing.database import Database
from tests.proof.conftest import NewHands
from tests.proof.hands import Hands
from tests.proof.oracle import LAWS, SESSION, LawBroken, Oracle
from tests.proof.races import sessions
from tests.proof.test_reaper import vanish

Crime: TypeAlias = Callable[[NewHands], object]


def sql(*statements: str) -> Crime:
    """Statements about a job that a worker has claimed."""

    def commit(new_hands: NewHands) -> None:
        hands = new_hands()
        hands.enqueue({"a": 1})
        hands.claim()
        for statement in statements:
            hands.connection.execute(statement)

    return commit


def start(*starts: str) -> Crime:
    """What the ledger says of a job that a worker has claimed."""
    return sql(
        *(
            "INSERT INTO proof.starts (job_id, attempt, claim_token, pid)"
            f" SELECT id, attempt, claim_token + {more}, 1 FROM millpond.jobs"
            for more in starts
        )
    )


def many_starts(new_hands: NewHands) -> None:
    hands = new_hands()
    hands.enqueue({"a": 1}, max_attempts=1)
    hands.claim()
    start_of_all = "INSERT INTO proof.starts SELECT nextval('proof.starts_place_seq'), id, attempt, claim_token, 1"
    hands.connection.execute(f"{start_of_all} FROM millpond.jobs")
    hands.connection.execute("UPDATE millpond.jobs SET state = 'available', claim_token = NULL, worker_id = NULL")
    hands.connection.execute("UPDATE millpond.jobs SET attempt = 0")
    hands.claim()
    hands.connection.execute(f"{start_of_all} FROM millpond.jobs")


def one_token_for_two(new_hands: NewHands) -> None:
    first, second = new_hands(), new_hands()
    first.enqueue({"a": 2})
    (job,) = first.claim(1)
    second.claim(1, token=job.claim_token)


def leave_in_the_middle(new_hands: NewHands) -> None:
    hands = new_hands()
    hands.enqueue({"a": 1})
    hands.claim()
    hands.retire()


def forget_what_was_lost(new_hands: NewHands) -> None:
    worker, other = new_hands(), new_hands()
    worker.enqueue({"a": 1})
    worker.claim()
    other.register(lease=2.0)
    vanish(other.connection, worker)
    other.connection.execute("UPDATE proof.workers SET gone_at = gone_at - interval '1 h' WHERE gone_at IS NOT NULL")
    other.connection.execute("UPDATE proof.workers SET came_at = came_at - interval '1 h'")


def deadlock(new_hands: NewHands) -> None:
    first, second = new_hands(autocommit=False), new_hands(autocommit=False)
    job, other = first.enqueue({"a": 2})
    first.connection.commit()
    lock = "SELECT FROM millpond.jobs WHERE id = %s FOR UPDATE"
    first.connection.execute(lock, [job])
    second.connection.execute(lock, [other])
    onlooker = new_hands().connection
    onlooker.execute("SET deadlock_timeout = '1ms'")
    with sessions(onlooker) as beside, contextlib.suppress(psycopg.errors.DeadlockDetected):
        waiting = beside.start(first, lambda hands: hands.connection.execute(lock, [other]))
        assert waiting.waits()
        second.connection.execute("SET deadlock_timeout = '1ms'")
        try:
            second.connection.execute(lock, [job])
        finally:
            second.connection.rollback()
            waiting.result()
            first.connection.rollback()
    for each in (first, second):
        each.connection.close()  # which makes its server process tell the statistics


def dawdle(new_hands: NewHands) -> None:
    new_hands(autocommit=False).connection.execute("SELECT 1")


CRIMES: Final[Mapping[str, Crime]] = {
    "a job moves as job.MOVES says": sql(
        "UPDATE millpond.jobs SET state = 'available', claim_token = NULL, worker_id = NULL",
        "UPDATE millpond.jobs SET state = 'completed', finalized_at = now()",
    ),
    "a final state is never left, nor written to again": sql(
        "UPDATE millpond.jobs SET state = 'completed', finalized_at = now(), claim_token = NULL, worker_id = NULL",
        "UPDATE millpond.jobs SET priority = 3",
    ),
    "a claim token comes to a job once": sql(
        "CREATE TABLE kept AS SELECT claim_token, worker_id FROM millpond.jobs",
        "UPDATE millpond.jobs SET state = 'available', claim_token = NULL, worker_id = NULL",
        "UPDATE millpond.jobs AS j SET state = 'running', attempt = attempt + 1, claim_token = kept.claim_token,"
        " worker_id = kept.worker_id FROM kept",
    ),
    "a claim token is one worker's": one_token_for_two,
    "a running job changes hands only through another state": sql("UPDATE millpond.jobs SET claim_token = 7"),
    "a claim counts one attempt, and no more than allowed": sql(
        "UPDATE millpond.jobs SET state = 'available', claim_token = NULL, worker_id = NULL",
        "UPDATE millpond.jobs SET state = 'running', claim_token = 7, worker_id = gen_random_uuid()",
    ),
    "only handing back, or putting off, gives an attempt back, and only its own": sql(
        "UPDATE millpond.jobs SET state = 'retryable', attempt = 0, claim_token = NULL, worker_id = NULL"
    ),
    "nothing raises max_attempts": sql("UPDATE millpond.jobs SET max_attempts = 1000"),
    "nothing becomes available before it is due": sql(
        "UPDATE millpond.jobs SET state = 'scheduled', claim_token = NULL, worker_id = NULL,"
        " scheduled_at = now() + interval '1 h'",
        "UPDATE millpond.jobs SET state = 'available'",
    ),
    "an executor starts under a claim, once": start("0", "0"),
    "a job starts at most max_attempts times, apart from attempts that were given back": many_starts,
    "a worker that leaves by itself holds nothing": leave_in_the_middle,
    "no job stays with a lost worker for long while another could take it back": forget_what_was_lost,
    "nobody deadlocks": deadlock,
    "no session stays idle in a transaction": dawdle,
}


@pytest.mark.parametrize("law", LAWS)
def test_a_law_that_is_broken_is_named(law: str, oracle: Oracle, new_hands: NewHands) -> None:
    oracle.idle = 0.0
    CRIMES[law](new_hands)
    assert law in oracle.offenders()
    with pytest.raises(LawBroken, match=law[:20]):
        oracle.judge()
    oracle.asleep = True


def test_a_start_without_a_claim_is_named(oracle: Oracle, new_hands: NewHands) -> None:
    start("1")(new_hands)
    assert list(oracle.offenders()) == ["an executor starts under a claim, once"]
    oracle.asleep = True


def test_what_is_right_passes(oracle: Oracle, hands: Hands) -> None:
    hands.enqueue({"a": 3}, max_attempts=2)
    held = hands.claim()
    hands.settle(held[:1], Completed())
    hands.settle(held[1:], Failed(ValueError("no")))
    hands.promote()
    for job in hands.claim():
        oracle.saw(job)
    hands.settle(held, Completed())
    assert oracle.offenders() == {}


def test_what_a_test_does_itself_is_not_judged(oracle: Oracle, hands: Hands, onlooker: psycopg.Connection[Any]) -> None:
    hands.enqueue({"a": 2})
    hands.claim()
    onlooker.execute("UPDATE millpond.jobs SET claim_token = 7, attempt = 24")
    onlooker.execute("DELETE FROM millpond.workers")
    assert oracle.offenders() == {}


def test_sessions_of_the_product_are_told_by_their_name(database: Database) -> None:
    assert SESSION.startswith("millpond ")
    with database.connect() as connection:
        assert connection.info.get_parameters().get("application_name", "") == ""
