"""Every pair of statements that may meet on one row, in both orders, to both ends; and crowds of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import psycopg
import pytest

from millpond.job import Job
from millpond.outcome import Completed, Failed, Released
from tests.proof.conftest import NewHands
from tests.proof.hands import Hands
from tests.proof.mutation import PASS_GATE, mutated
from tests.proof.oracle import Oracle
from tests.proof.races import Gate, sessions
from tests.proof.test_reaper import row, silence, states, vanish

Onlooker: TypeAlias = psycopg.Connection[Any]

# ── one running row, whose worker is taken for lost, and is not ──────────────────────────────────────────────────────


class Mover(NamedTuple):
    """A statement that may move the row."""

    does: Callable[[Hands, Job], bool]
    """Whether it moved the row."""
    leads_to: str
    waits: bool = True
    """Whether it waits for somebody who has the row locked; else it leaves the row alone."""

    def done_to(self, job: Job) -> Callable[[Hands], bool]:
        """The same, for one job."""
        return lambda hands: self.does(hands, job)


MOVERS: Final[Mapping[str, Mover]] = {
    "settle completed": Mover(lambda hands, job: not hands.settle([job], Completed()), "completed"),
    "settle failed": Mover(lambda hands, job: not hands.settle([job], Failed(ValueError("no"))), "retryable"),
    "hand back": Mover(lambda hands, job: not hands.settle([job], Released("stopping")), "available"),
    "complete in place": Mover(lambda hands, job: hands.complete(job), "completed"),
    "release": Mover(lambda hands, job: hands.release(job.claim_token) == 1, "available"),
    "reap": Mover(lambda hands, job: bool(hands.reap([job.id])), "available", waits=False),
}


def end(hands: Hands, *, commits: bool) -> None:
    """End the transaction of a session."""
    if commits:
        hands.connection.commit()
    else:
        hands.connection.rollback()


def held_by_a_lost_worker(owner: Hands, onlooker: Onlooker) -> Job:
    """A running job whose worker has no row any more, and may write nevertheless."""
    owner.enqueue({"a": 1})
    owner.register()
    (job,) = owner.claim()
    if not owner.connection.autocommit:
        owner.connection.commit()
    vanish(onlooker, owner)
    return job


def finish_all(new_hands: NewHands) -> None:
    """Run what is available to its end, so that the next claim takes what comes next."""
    hands = new_hands()
    hands.settle(hands.claim(), Completed())


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
@pytest.mark.parametrize("first", MOVERS)
def test_one_of_two_moves_a_row(first: str, commits: bool, new_hands: NewHands, onlooker: Onlooker) -> None:
    owner, other = new_hands(autocommit=False), new_hands()
    for second in MOVERS:
        mover, job = MOVERS[second], held_by_a_lost_worker(owner, onlooker)
        other.stand_in_for(owner)
        with sessions(onlooker) as beside:
            assert MOVERS[first].does(owner, job)
            under_way = beside.start(other, mover.done_to(job))
            assert under_way.waits() == mover.waits, second
            end(owner, commits=commits)
            moved = under_way.result()
        assert moved == (mover.waits and not commits), second
        if not moved and not commits:
            assert mover.does(other, job), second
        winner = first if commits else second
        after = row(onlooker, job.id)
        assert after["state"] == MOVERS[winner].leads_to, second
        assert after["attempt"] == (0 if winner in ("hand back", "release") else 1), second
        finish_all(new_hands)


# ── statements that were under way when another came before them ─────────────────────────────────────────────────────

GATES: Final[Mapping[str, tuple[str, tuple[str, str]]]] = {
    "settle completed": ("settle_jobs", ("    WHERE j.id = o.id", f"    WHERE {PASS_GATE} AND j.id = o.id")),
    "complete in place": ("complete_job", ("WHERE j.id = ", f"WHERE {PASS_GATE} AND j.id = ")),
    "release": ("release_claim", ("WHERE j.state = 'running'", f"WHERE {PASS_GATE} AND j.state = 'running'")),
    "reap": (
        "reap_jobs",
        (
            "    WHERE j.id = ANY ({ids}::bigint[]) AND j.state = 'running'\n    FOR UPDATE",
            f"    WHERE {PASS_GATE} AND j.id = ANY ({{ids}}::bigint[]) AND j.state = 'running'\n    FOR UPDATE",
        ),
    ),
}
"""Where each stands still: after it has seen the row as it was, before it locks it."""


class Meanwhile(NamedTuple):
    """What comes in between."""

    happens: Callable[[NewHands, Onlooker, Hands, Job], object]
    leads_to: str | None


def _reaped(new_hands: NewHands, onlooker: Onlooker, owner: Hands, job: Job) -> None:
    assert new_hands().reap([job.id])


def _claimed_by_another(new_hands: NewHands, onlooker: Onlooker, owner: Hands, job: Job) -> None:
    hands = new_hands()
    assert hands.reap([job.id])
    assert [each.id for each in hands.claim()] == [job.id]


def _done_by_another(new_hands: NewHands, onlooker: Onlooker, owner: Hands, job: Job) -> None:
    hands = new_hands()
    assert hands.reap([job.id])
    assert hands.settle(hands.claim(), Completed()) == []


def _settled(new_hands: NewHands, onlooker: Onlooker, owner: Hands, job: Job) -> None:
    hands = new_hands()
    assert hands.settle([job], Failed(ValueError("no"))) == []


def _deleted(new_hands: NewHands, onlooker: Onlooker, owner: Hands, job: Job) -> None:
    onlooker.execute("DELETE FROM millpond.jobs WHERE id = %s", [job.id])


MEANWHILE: Final[Mapping[str, Meanwhile]] = {
    "reaped": Meanwhile(_reaped, "available"),
    "claimed by another": Meanwhile(_claimed_by_another, "running"),
    "done by another": Meanwhile(_done_by_another, "completed"),
    "settled": Meanwhile(_settled, "retryable"),
    "deleted": Meanwhile(_deleted, None),
}


@pytest.fixture
def gate(new_hands: NewHands) -> Gate:
    """On a connection of its own."""
    return Gate(new_hands().connection)


def came_too_late(late: str, meanwhile: str, new_hands: NewHands, onlooker: Onlooker, gate: Gate) -> None:
    """`late` is in the middle of its statement when something else happens to the row, and changes nothing."""
    owner = new_hands()
    job = held_by_a_lost_worker(owner, onlooker)
    name, change = GATES[late]
    with sessions(onlooker) as beside:
        with gate.in_front(name, change, lambda: beside.start(owner, MOVERS[late].done_to(job))) as under_way:
            MEANWHILE[meanwhile].happens(new_hands, onlooker, owner, job)
        assert not under_way.result()
    if MEANWHILE[meanwhile].leads_to is not None:
        assert row(onlooker, job.id)["state"] == MEANWHILE[meanwhile].leads_to


@pytest.mark.parametrize("late", GATES)
def test_what_comes_in_the_middle_of_a_statement_stands(
    late: str, new_hands: NewHands, onlooker: Onlooker, gate: Gate
) -> None:
    for meanwhile in MEANWHILE:
        came_too_late(late, meanwhile, new_hands, onlooker, gate)
        finish_all(new_hands)


def test_a_reaper_that_asked_once_would_take_from_the_living(
    new_hands: NewHands, onlooker: Onlooker, gate: Gate, oracle: Oracle
) -> None:
    """The owner and the token are both compared with what was seen; either is enough."""
    oracle.asleep = True
    owner = ("JOIN dead ON dead.worker_id = j.worker_id", "CROSS JOIN (SELECT FROM dead LIMIT 1) AS dead")
    token = (" AND j.claim_token = lost.claim_token", "")
    for spared in (owner, token):
        with mutated("reap_jobs", spared):
            came_too_late("reap", "claimed by another", new_hands, onlooker, gate)
    with mutated("reap_jobs", owner, token), pytest.raises(AssertionError):
        came_too_late("reap", "claimed by another", new_hands, onlooker, gate)


def test_a_late_batch_and_one_in_time_do_not_deadlock(new_hands: NewHands, onlooker: Onlooker, gate: Gate) -> None:
    """Both lock rows one after another, the late one those too that are not its own any more: all in the same order."""
    late, owner, executor = new_hands(), new_hands(), new_hands(autocommit=False)
    late.enqueue({"a": 3})
    first, middle, last = late.claim()
    with sessions(onlooker) as beside:
        assert executor.complete(middle)  # and does not commit yet
        name, change = GATES["settle completed"]
        with gate.in_front(
            name, change, lambda: beside.start(late, lambda hands: hands.settle([first, middle, last], Completed()))
        ) as late_batch:
            vanish(onlooker, late)
            assert {job.id for job in owner.reap([first.id, last.id])} == {first.id, last.id}
            mine = {job.id: job for job in owner.claim()}
        assert late_batch.waits()  # for the executor
        batch = beside.start(owner, lambda hands: hands.settle([mine[last.id], mine[first.id]], Completed()))
        assert batch.waits()  # for the late batch
        executor.connection.commit()
        assert late_batch.result() == [first.id, middle.id, last.id]
        assert batch.result() == []


# ── a worker's own row ───────────────────────────────────────────────────────────────────────────────────────────────


class RowMover(NamedTuple):
    """A statement about a silent worker's row."""

    does: Callable[[Hands, Hands], bool]
    """By whom, about whom; whether it found the row."""
    removes: bool
    waits: bool = True

    def done_to(self, worker: Hands) -> Callable[[Hands], bool]:
        """The same, about one worker."""
        return lambda hands: self.does(hands, worker)


ROW_MOVERS: Final[Mapping[str, RowMover]] = {
    "beat": RowMover(lambda hands, _: hands.beat(), removes=False),
    "retire": RowMover(lambda hands, _: hands.retire(), removes=True),
    "bury": RowMover(lambda hands, worker: worker.worker_id in hands.bury(), removes=True, waits=False),
}


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
@pytest.mark.parametrize("first", ROW_MOVERS)
def test_a_worker_beats_or_is_buried(first: str, commits: bool, new_hands: NewHands, onlooker: Onlooker) -> None:
    worker, other = new_hands(autocommit=False), new_hands()
    for second, mover in ROW_MOVERS.items():
        worker.register()
        worker.connection.commit()
        silence(onlooker, worker)
        other.stand_in_for(worker)
        with sessions(onlooker) as beside:
            assert ROW_MOVERS[first].does(worker, worker)
            under_way = beside.start(other, mover.done_to(worker))
            assert under_way.waits() == mover.waits, second
            end(worker, commits=commits)
            found = under_way.result()
        gone = commits and ROW_MOVERS[first].removes
        assert found == (mover.waits and not gone), second
        there = onlooker.execute("SELECT count(*) FROM millpond.workers WHERE id = %s", [worker.worker_id]).fetchone()
        assert (there == (1,)) == (not gone and not (found and mover.removes)), second


def test_a_beat_in_the_middle_of_a_burial_saves_the_worker(new_hands: NewHands, onlooker: Onlooker, gate: Gate) -> None:
    worker, reaper = new_hands(), new_hands()
    worker.register()
    silence(onlooker, worker)
    change = ("WHERE w.expires_at < now()", f"WHERE {PASS_GATE} AND w.expires_at < now()")
    with sessions(onlooker) as beside:
        with gate.in_front("bury_workers", change, lambda: beside.start(reaper, Hands.bury)) as burial:
            assert worker.beat()
        assert burial.result() == []
    assert worker.beat()


def test_a_duty_is_done_by_one(new_hands: NewHands, onlooker: Onlooker) -> None:
    first, second = new_hands(autocommit=False), new_hands()
    assert first.take_duty()
    with sessions(onlooker) as beside:
        under_way = beside.start(second, Hands.take_duty)
        assert not under_way.waits()
        assert not under_way.result()
        first.connection.commit()
        assert not second.take_duty()
    onlooker.execute("UPDATE millpond.duties SET next_at = now()")
    assert second.take_duty()


# ── rows that nobody owns ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
def test_two_claims_share_no_row_and_do_not_wait(commits: bool, new_hands: NewHands, onlooker: Onlooker) -> None:
    first, second = new_hands(autocommit=False), new_hands()
    second.enqueue({"a": 10, "b": 10})
    taken = {job.id for job in first.claim(8)}
    with sessions(onlooker) as beside:
        under_way = beside.start(second, lambda hands: hands.claim(20))
        assert not under_way.waits()
        end(first, commits=commits)
        others = {job.id for job in under_way.result()}
    assert (len(taken), len(others), taken & others) == (8, 12, set())
    assert {job.id for job in second.claim(20)} == (set() if commits else taken)


def test_two_promotions_share_no_row_and_do_not_wait(new_hands: NewHands, onlooker: Onlooker) -> None:
    first, second = new_hands(autocommit=False), new_hands()
    due = second.enqueue({"a": 20}, delay=3_600)
    onlooker.execute("UPDATE millpond.jobs SET scheduled_at = now()")
    assert first.promote(8).promoted == 8
    with sessions(onlooker) as beside:
        under_way = beside.start(second, Hands.promote)
        assert not under_way.waits()
        assert under_way.result().promoted == 12
        first.connection.commit()
    assert states(onlooker) == {"available": len(due)}


def test_two_reapers_share_no_row_and_do_not_wait(new_hands: NewHands, onlooker: Onlooker) -> None:
    first, second, worker = new_hands(autocommit=False), new_hands(), new_hands()
    worker.enqueue({"a": 20})
    worker.claim()
    vanish(onlooker, worker)
    taken = {job.id for job in first.reap(first.lost(8))}
    with sessions(onlooker) as beside:
        under_way = beside.start(second, Hands.reap)
        assert not under_way.waits()
        others = {job.id for job in under_way.result()}
        first.connection.commit()
    assert (len(taken), len(others), taken & others) == (8, 12, set())


WAITING: Final = "WHERE j.state IN ('scheduled', 'retryable') AND j.scheduled_at <= now() AND j.id <> ALL"
CLAIM_GATE: Final = ("WHERE ring.room > 0", f"WHERE {PASS_GATE} AND ring.room > 0")
PROMOTION_GATE: Final = (WAITING, WAITING.replace("WHERE", f"WHERE {PASS_GATE} AND"))


@pytest.mark.parametrize(
    "meanwhile",
    ["UPDATE millpond.jobs SET state = 'cancelled', finalized_at = now()", "DELETE FROM millpond.jobs"],
    ids=["cancelled", "deleted"],
)
def test_what_is_gone_in_the_middle_of_a_claim_is_not_claimed(
    meanwhile: str, new_hands: NewHands, onlooker: Onlooker, gate: Gate
) -> None:
    hands = new_hands()
    hands.enqueue({"a": 3})
    with sessions(onlooker) as beside:
        with gate.in_front("claim_jobs", CLAIM_GATE, lambda: beside.start(hands, Hands.claim)) as claim:
            onlooker.execute(meanwhile)
        assert claim.result() == []


def test_what_is_claimed_in_the_middle_of_a_claim_is_another_s(
    new_hands: NewHands, onlooker: Onlooker, gate: Gate
) -> None:
    late, first = new_hands(), new_hands()
    late.enqueue({"a": 3, "b": 3})
    late.register()
    with sessions(onlooker) as beside:
        with gate.in_front("claim_jobs", CLAIM_GATE, lambda: beside.start(late, Hands.claim)) as claim:
            taken = {job.id for job in first.claim(4)}
        others = {job.id for job in claim.result()}
    assert (len(taken), len(others), taken & others) == (4, 2, set())


def test_what_is_put_off_in_the_middle_of_a_promotion_stays(
    new_hands: NewHands, onlooker: Onlooker, gate: Gate
) -> None:
    hands = new_hands()
    due = hands.enqueue({"a": 3}, delay=3_600)
    onlooker.execute("UPDATE millpond.jobs SET scheduled_at = now()")
    with sessions(onlooker) as beside:
        with gate.in_front("promote_jobs", PROMOTION_GATE, lambda: beside.start(hands, Hands.promote)) as promotion:
            onlooker.execute("UPDATE millpond.jobs SET scheduled_at = now() + interval '1 h' WHERE id = %s", [due[1]])
        assert promotion.result().promoted == 2
    assert [row(onlooker, job_id)["state"] for job_id in due] == ["available", "scheduled", "available"]
