"""A job is part of the caller's transaction, through every kind of connection: promise 1, "no loss"."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta

import pytest

from millpond.errors import ArgsTooLarge, InvalidArgs, InvalidJob

from .conftest import Onlooker
from .ways import Way


def test_a_commit_stores_the_job_and_wakes_once(way: Way, onlooker: Onlooker) -> None:
    way.execute("CREATE TABLE orders (id int)")
    first = way.enqueue(
        {"n": 1}, tenant="acme", queue="mail", priority=7, max_attempts=3, timeout=2.5, metadata={"a": "é"}
    )
    second = way.enqueue({"n": 2}, tenant="acme")
    assert onlooker.jobs() == []
    assert onlooker.wake_ups() == []
    way.commit()
    assert onlooker.next_wake_up() == ""  # and by then the rows are there
    stored = onlooker.jobs()
    assert [job["id"] for job in stored] == [first, second]
    assert onlooker.wake_ups() == []
    assert stored[0] == stored[0] | {
        "executor": "work",
        "args": {"n": 1},
        "tenant_id": "acme",
        "queue": "mail",
        "priority": 7,
        "max_attempts": 3,
        "timeout": 2.5,
        "metadata": {"a": "é"},
        "state": "available",
        "attempt": 0,
        "scheduled_at": stored[0]["created_at"],
    }


def test_a_rollback_leaves_no_row_and_wakes_nobody(way: Way, onlooker: Onlooker) -> None:
    way.enqueue()
    way.enqueue(delay=60)
    way.rollback()
    assert onlooker.jobs() == []
    assert onlooker.wake_ups() == []


def test_a_rolled_back_savepoint_takes_its_own_jobs_alone(way: Way, onlooker: Onlooker) -> None:
    before = way.enqueue(tenant="before")
    with contextlib.suppress(ZeroDivisionError), way.savepoint():
        way.enqueue(tenant="within")
        raise ZeroDivisionError
    with way.savepoint():
        kept = way.enqueue(tenant="kept")
    after = way.enqueue(tenant="after")
    way.commit()
    assert [job["id"] for job in onlooker.jobs()] == [before, kept, after]


def test_typed_errors_leave_the_transaction_as_it_was(way: Way, onlooker: Onlooker) -> None:
    kept = way.enqueue({"n": 1})
    with pytest.raises(InvalidArgs, match=r"args\.items\[1\]\.price: is nan"):
        way.enqueue({"items": [{"price": 1.0}, {"price": float("nan")}]})
    with pytest.raises(InvalidArgs, match=r"args\.note: contains NUL"):
        way.enqueue({"note": "a\0b"})
    with pytest.raises(InvalidJob, match="tenant"):
        way.enqueue(tenant="")
    with pytest.raises(ArgsTooLarge):
        way.enqueue({"x": "y" * 2_000_000})
    way.commit()
    assert [job["id"] for job in onlooker.jobs()] == [kept]


def test_many_jobs_come_back_in_their_order(way: Way, onlooker: Onlooker) -> None:
    jobs = [way.client.job({"n": n}, tenant=f"t{n % 7}", executor="work", delay=n % 2 and 60) for n in range(100)]
    ids = way.enqueue_many(jobs)
    way.commit()
    assert [(job["id"], job["args"]["n"]) for job in onlooker.jobs()] == [(ids[n], n) for n in range(100)]


def test_the_database_decides_what_is_due(way: Way, onlooker: Onlooker) -> None:
    now = datetime.now(UTC)
    due = way.enqueue(scheduled_at=now - timedelta(days=1))
    later = way.enqueue(scheduled_at=now + timedelta(days=1))
    delayed = way.enqueue(delay=timedelta(hours=1))
    at_once = way.enqueue(delay=0)
    way.commit()
    jobs = {job["id"]: job for job in onlooker.jobs()}
    assert [jobs[each]["state"] for each in (due, later, delayed, at_once)] == [
        "available",
        "scheduled",
        "scheduled",
        "available",
    ]
    assert jobs[due]["scheduled_at"] == now - timedelta(days=1)
    assert jobs[delayed]["scheduled_at"] - jobs[delayed]["created_at"] == timedelta(hours=1)
    assert jobs[at_once]["scheduled_at"] == jobs[at_once]["created_at"]
    assert onlooker.wake_ups() == [""]  # upkeep is to learn of the due times, too
