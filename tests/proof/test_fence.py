"""The fence: a write by somebody who is no longer the owner changes nothing, and every statement has what makes it so.

Each behaviour is a test by itself; with a guard taken out of the statement's text, it must fail.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeAlias

import psycopg
import pytest

import millpond
from millpond.job import Job
from millpond.outcome import Cancelled, Completed, Failed, Outcome, Released
from millpond.store.statement import load
from tests.proof.conftest import NewHands
from tests.proof.hands import Hands
from tests.proof.mutation import mutated
from tests.proof.oracle import Oracle
from tests.proof.test_reaper import row, silence, vanish

Onlooker: TypeAlias = psycopg.Connection[Any]
Behaviour: TypeAlias = Callable[[NewHands, Onlooker], None]

# ── what every statement must have ───────────────────────────────────────────────────────────────────────────────────

NAMES: Final = sorted(entry.name.removesuffix(".sql") for entry in files("millpond.store").joinpath("sql").iterdir())

CHANGE: Final = re.compile(r"(?:UPDATE|DELETE\s+FROM|MERGE\s+INTO)\s+\{schema\}\.jobs\b", re.IGNORECASE)

OWNER: Final = (r"j\.(?:id|worker_id) = ", r"j\.claim_token = ", r"j\.state = 'running'")
"""What the WHERE of a statement must say that moves running rows."""

UNOWNED: Final[Mapping[str, tuple[str, str]]] = {
    "claim_jobs": (r"j\.state = 'available'", "nobody owns available jobs; the claim is what makes an owner"),
    "promote_jobs": (r"j\.state IN \('scheduled', 'retryable'\)", "nobody owns jobs that wait"),
}
"""Statements that need no token, each with what it says instead of the rows that it locks, and why that is enough."""


def changes(name: str) -> list[str]:
    """The parts of a statement that change jobs: each from its verb to the end of its level of parentheses."""
    text = re.sub(r"--.*", "", load(name))
    return [text[found.start() : _end_of_level(text, found.start())] for found in CHANGE.finditer(text)]


def _end_of_level(text: str, start: int) -> int:
    depth = 0
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth < 0:
            return place
    return len(text)


CHANGING: Final = [name for name in NAMES if changes(name)]


@pytest.mark.parametrize("name", CHANGING)
def test_a_statement_that_changes_jobs_says_whose_they_are(name: str) -> None:
    for change in changes(name):
        where = re.split(r"\bRETURNING\b", change.rpartition("WHERE")[2])[0]
        if name not in UNOWNED:
            assert [part for part in OWNER if not re.search(part, where)] == [], f"{name}.sql needs its owner's guard"
            continue
        state, reason = UNOWNED[name]
        assert reason
        assert re.search(r"j\.ctid = ANY \(ARRAY\(SELECT", where), (
            f"{name}.sql changes what it has locked, and only that"
        )
        assert re.search(rf"{state}(?:(?!\bSELECT\b).)*FOR UPDATE SKIP LOCKED", load(name), re.DOTALL), name


def test_the_lint_sees_the_statements_that_are_there() -> None:
    assert {"claim_jobs", "complete_job", "promote_jobs", "reap_jobs", "release_claim", "settle_jobs"} <= set(CHANGING)
    assert set(UNOWNED) <= set(CHANGING)


def test_jobs_are_changed_by_these_files_alone() -> None:
    package = Path(millpond.__file__).parent
    others = [
        path for path in package.rglob("*.py") if re.search(r"(?:UPDATE|DELETE FROM) \S*jobs\b", path.read_text())
    ]
    assert others == []


# ── what the guards are for ──────────────────────────────────────────────────────────────────────────────────────────

OUTCOMES: Final[Mapping[str, Outcome]] = {
    "completed": Completed(),
    "failed": Failed(ValueError("late")),
    "cancelled": Cancelled("late"),
    "released": Released("late"),
}


def a_late_settlement_of_what_another_runs(new_hands: NewHands, onlooker: Onlooker) -> None:
    for outcome in OUTCOMES.values():
        late, owner = new_hands(), new_hands()
        job = _lost(late, owner, onlooker)
        (current,) = owner.claim()
        before = row(onlooker, job.id)
        assert late.settle([job], outcome) == [job.id]
        assert row(onlooker, job.id) == before
        assert owner.settle([current], Completed()) == []
        assert row(onlooker, job.id)["state"] == "completed"


def a_late_settlement_of_what_waits_again(new_hands: NewHands, onlooker: Onlooker) -> None:
    for outcome in OUTCOMES.values():
        late, reaper = new_hands(), new_hands()
        job = _lost(late, reaper, onlooker)
        before = row(onlooker, job.id)
        assert late.settle([job], outcome) == [job.id]
        assert row(onlooker, job.id) == before
        reaper.settle(reaper.claim(), Completed())


def a_late_settlement_of_what_is_done(new_hands: NewHands, onlooker: Onlooker) -> None:
    for outcome in OUTCOMES.values():
        late, owner = new_hands(), new_hands()
        job = _lost(late, owner, onlooker)
        owner.settle(owner.claim(), Completed())
        before = row(onlooker, job.id)
        assert late.settle([job], outcome) == [job.id]
        assert row(onlooker, job.id) == before


def a_settlement_of_the_same_worker_s_earlier_claim(new_hands: NewHands, onlooker: Onlooker) -> None:
    hands = new_hands()
    hands.enqueue({"a": 1})
    (first,) = hands.claim()
    hands.settle([first], Released("stopping"))
    (second,) = hands.claim()
    assert hands.settle([first], Completed()) == [first.id]
    assert row(onlooker, first.id)["claim_token"] == second.claim_token


def a_late_outcome_beside_others_that_are_in_time(new_hands: NewHands, onlooker: Onlooker) -> None:
    late, owner = new_hands(), new_hands()
    job = _lost(late, owner, onlooker)
    owner.claim()
    late.register()
    late.enqueue({"b": 99})
    others = late.claim()
    assert late.settle([*others[:50], job, *others[50:]], Completed()) == [job.id]
    assert {row(onlooker, other.id)["state"] for other in others} == {"completed"}


def a_late_completion_in_place(new_hands: NewHands, onlooker: Onlooker) -> None:
    late, owner = new_hands(), new_hands()
    job = _lost(late, owner, onlooker)
    assert not late.complete(job)
    owner.claim()
    before = row(onlooker, job.id)
    assert not late.complete(job)
    assert row(onlooker, job.id) == before


def a_late_release_of_a_claim(new_hands: NewHands, onlooker: Onlooker) -> None:
    late, owner = new_hands(), new_hands()
    job = _lost(late, owner, onlooker)
    owner.claim()
    before = row(onlooker, job.id)
    assert late.release(job.claim_token) == 0
    assert row(onlooker, job.id) == before


def the_release_of_one_claim_beside_another_of_the_same_worker(new_hands: NewHands, onlooker: Onlooker) -> None:
    hands = new_hands()
    hands.enqueue({"a": 4})
    first, second = hands.claim(2), hands.claim(2)
    assert hands.release(first[0].claim_token) == 2
    assert [(row(onlooker, job.id)["state"], row(onlooker, job.id)["attempt"]) for job in first] == [
        ("available", 0)
    ] * 2
    assert [row(onlooker, job.id)["state"] for job in second] == ["running"] * 2


def reaping_what_a_worker_that_lives_holds(new_hands: NewHands, onlooker: Onlooker) -> None:
    hands, reaper = new_hands(), new_hands()
    hands.enqueue({"a": 3})
    held = hands.claim()
    assert reaper.lost() == []
    assert reaper.reap([job.id for job in held]) == []
    assert hands.settle(held, Completed()) == []


def reaping_what_was_settled_meanwhile(new_hands: NewHands, onlooker: Onlooker) -> None:
    late, reaper = new_hands(), new_hands()
    late.enqueue({"a": 2})
    held = late.claim()
    vanish(onlooker, late)
    found = reaper.lost()
    assert late.settle(held[:1], Completed()) == []
    assert [job.id for job in reaper.reap(found)] == [held[1].id]
    assert row(onlooker, held[0].id)["state"] == "completed"


def reaping_what_another_runs_meanwhile(new_hands: NewHands, onlooker: Onlooker) -> None:
    late, reaper, owner = new_hands(), new_hands(), new_hands()
    late.enqueue({"a": 2})
    late.claim()
    vanish(onlooker, late)
    found = reaper.lost()
    assert len(owner.reap()) == 2
    owner.claim(1)
    assert reaper.reap(found) == []


def burying_a_worker_that_beats(new_hands: NewHands, onlooker: Onlooker) -> None:
    hands, silent, reaper = new_hands(), new_hands(), new_hands()
    hands.register()
    silent.register()
    silence(onlooker, silent)
    assert reaper.bury() == [silent.worker_id]
    assert hands.beat()
    assert not silent.beat()


def a_claim_of_a_worker_without_a_row(new_hands: NewHands, onlooker: Onlooker) -> None:
    hands = new_hands()
    hands.enqueue({"a": 1})
    hands.register()
    vanish(onlooker, hands)
    assert hands.claim() == []


BEHAVIOURS: Final[tuple[Behaviour, ...]] = (
    a_late_settlement_of_what_another_runs,
    a_late_settlement_of_what_waits_again,
    a_late_settlement_of_what_is_done,
    a_settlement_of_the_same_worker_s_earlier_claim,
    a_late_outcome_beside_others_that_are_in_time,
    a_late_completion_in_place,
    a_late_release_of_a_claim,
    the_release_of_one_claim_beside_another_of_the_same_worker,
    reaping_what_a_worker_that_lives_holds,
    reaping_what_was_settled_meanwhile,
    reaping_what_another_runs_meanwhile,
    burying_a_worker_that_beats,
    a_claim_of_a_worker_without_a_row,
)


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda each: each.__name__)
def test_nothing_is_changed_by(behaviour: Behaviour, new_hands: NewHands, onlooker: Onlooker) -> None:
    behaviour(new_hands, onlooker)


TOKEN: Final = " AND j.claim_token = {claim_token}"
TOKEN_OF_OUTCOME: Final = " AND j.claim_token = o.claim_token"
ANOTHER_S: Final = " AND NOT EXISTS (SELECT FROM {schema}.workers AS w WHERE w.id = j.worker_id)"

MUTANTS: Final[tuple[tuple[str, str, str, Behaviour], ...]] = (
    ("settle_jobs", TOKEN_OF_OUTCOME, "", a_late_settlement_of_what_another_runs),
    ("settle_jobs", TOKEN_OF_OUTCOME, "", a_settlement_of_the_same_worker_s_earlier_claim),
    ("settle_jobs", TOKEN_OF_OUTCOME, "", a_late_outcome_beside_others_that_are_in_time),
    ("settle_jobs", TOKEN_OF_OUTCOME + " AND j.state = 'running'", "", a_late_settlement_of_what_waits_again),
    ("settle_jobs", TOKEN_OF_OUTCOME + " AND j.state = 'running'", "", a_late_settlement_of_what_is_done),
    ("complete_job", TOKEN, "", a_late_completion_in_place),
    ("release_claim", TOKEN, "", the_release_of_one_claim_beside_another_of_the_same_worker),
    ("release_claim", "j.worker_id = {worker_id} AND j.claim_token = {claim_token}", "true", a_late_release_of_a_claim),
    ("reap_jobs", ANOTHER_S, "", reaping_what_a_worker_that_lives_holds),
    ("reap_jobs", ANOTHER_S, "", reaping_what_another_runs_meanwhile),
    (
        "find_lost_jobs",
        "WHERE NOT EXISTS (SELECT FROM {schema}.workers AS w WHERE w.id = o.worker_id)",
        "",
        reaping_what_a_worker_that_lives_holds,
    ),
    ("bury_workers", "WHERE w.expires_at < now()", "", burying_a_worker_that_beats),
    (
        "claim_jobs",
        " AND EXISTS (SELECT FROM {schema}.workers AS w WHERE w.id = {worker_id})",
        "",
        a_claim_of_a_worker_without_a_row,
    ),
)

"""`state = 'running'` beside a token is no mutant: only running rows have one (the CHECK jobs_running_is_owned)."""


def test_only_a_running_row_has_an_owner(new_hands: NewHands, onlooker: Onlooker) -> None:
    new_hands().enqueue({"a": 1})
    for owned in ("claim_token = 1", "worker_id = gen_random_uuid()", "state = 'running'"):
        with pytest.raises(psycopg.errors.CheckViolation):
            onlooker.execute(f"UPDATE millpond.jobs SET {owned}")


@pytest.mark.parametrize(
    ("name", "guard", "instead", "behaviour"), MUTANTS, ids=lambda each: getattr(each, "__name__", each)
)
def test_without_its_guard_it_would(
    name: str, guard: str, instead: str, behaviour: Behaviour, new_hands: NewHands, onlooker: Onlooker, oracle: Oracle
) -> None:
    oracle.asleep = True
    with mutated(name, (guard, instead)), pytest.raises((AssertionError, psycopg.errors.CheckViolation)):
        behaviour(new_hands, onlooker)


def test_a_settlement_leaves_alone_what_is_not_its_own(new_hands: NewHands, onlooker: Onlooker) -> None:
    hands = new_hands()
    (job_id,) = hands.enqueue({"a": 1})
    held = hands.claim()
    onlooker.execute('UPDATE millpond.jobs SET priority = 7, max_attempts = 3, metadata = \'{"by": "hand"}\'')
    assert hands.settle(held, Failed(ValueError("no"))) == []
    after = row(onlooker, job_id)
    assert (after["state"], after["priority"], after["max_attempts"]) == ("retryable", 7, 3)
    assert after["metadata"] == {"by": "hand"}


def test_a_row_that_is_gone_is_simply_gone(new_hands: NewHands, onlooker: Onlooker) -> None:
    hands = new_hands()
    hands.enqueue({"a": 100})
    held = hands.claim()
    onlooker.execute("DELETE FROM millpond.jobs WHERE id = %s", [held[50].id])
    assert hands.settle(held, Completed()) == [held[50].id]
    assert onlooker.execute("SELECT count(*) FROM millpond.jobs WHERE state = 'completed'").fetchone() == (99,)


def _lost(late: Hands, reaper: Hands, onlooker: Onlooker) -> Job:
    """A job that `late` still believes to hold."""
    late.enqueue({"a": 1})
    (job,) = late.claim()
    vanish(onlooker, late)
    assert [each.id for each in reaper.reap()] == [job.id]
    return job
