"""What is stored: any text, any JSON, thousands at once; in any schema, beside any other."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from millpond.client import Client
from millpond.errors import InvalidJob
from millpond.job import NewJob
from millpond.payload import decoder
from millpond.store import insert
from millpond.store.channel import channel
from millpond.store.migrations import upgrade
from millpond.testing.database import Database

from .conftest import Onlooker
from .ways import Way

ON_ONE_DATABASE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)

TEXTS = st.text(st.characters(codec=None))
JSON = st.recursive(
    # Larger floats are whole numbers, and jsonb writes them as such: nobody but an annotation can tell.
    st.none() | st.booleans() | st.integers() | st.floats(-1e15, 1e15) | st.sampled_from([math.nan, math.inf]) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=20,
)


def stored(conn: psycopg.Connection[Any], schema: str, column: str, job_id: int) -> str:
    """A column of a job, as the text that a worker reads."""
    query = sql.SQL("SELECT {}::text FROM {}.jobs WHERE id = {}")
    [[value]] = conn.execute(query.format(sql.Identifier(column), sql.Identifier(schema), job_id))
    return str(value)


@ON_ONE_DATABASE
@given(args=JSON)
def test_args_are_refused_or_come_back_the_same(database: Database, client: Client, args: object) -> None:
    with connection(database) as conn, contextlib.suppress(InvalidJob):
        job_id = client.enqueue(conn, args, tenant="t", executor="work")
        assert decoder()(stored(conn, client.schema, "args", job_id)) == args


@dataclass
class Measure:
    """Args that declare a float."""

    value: float


@ON_ONE_DATABASE
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_declared_floats_come_back_exactly(database: Database, client: Client, value: float) -> None:
    with connection(database) as conn:
        job_id = client.enqueue(conn, Measure(value), tenant="t", executor="work")
        assert decoder(Measure)(stored(conn, client.schema, "args", job_id)) == Measure(value)


@ON_ONE_DATABASE
@given(tenant=TEXTS, queue=TEXTS, executor=TEXTS, metadata=st.dictionaries(TEXTS, TEXTS))
def test_names_are_refused_or_come_back_the_same(
    database: Database, client: Client, tenant: str, queue: str, executor: str, metadata: dict[str, str]
) -> None:
    with connection(database) as conn, contextlib.suppress(InvalidJob):
        job_id = client.enqueue(conn, {}, tenant=tenant, queue=queue, executor=executor, metadata=metadata)
        columns = ("tenant_id", "queue", "executor")
        assert tuple(stored(conn, client.schema, each, job_id) for each in columns) == (tenant, queue, executor)
        assert metadata == (
            {} if not metadata else msgspec.json.decode(stored(conn, client.schema, "metadata", job_id))
        )


@contextlib.contextmanager
def connection(database: Database) -> Iterator[psycopg.Connection[Any]]:
    """A transaction that is rolled back; an error of the database's own fails the test."""
    with contextlib.closing(database.connect()) as conn:
        yield conn


STATEMENTS_OF_THEIR_OWN = ["'; DROP TABLE jobs; --", '"', "%(jobs)s %s {jobs} $1 :jobs", "\\'", "é" * 255, "\x7f\x1b"]


def test_no_name_is_ever_a_part_of_the_statement(way: Way, onlooker: Onlooker) -> None:
    for name in STATEMENTS_OF_THEIR_OWN:
        way.enqueue({name: name}, tenant=name, queue=name, executor=name, metadata={name: name})
    way.commit()
    for name, job in zip(STATEMENTS_OF_THEIR_OWN, onlooker.jobs(), strict=True):
        assert (job["tenant_id"], job["queue"], job["executor"]) == (name, name, name)
        assert (job["args"], job["metadata"]) == ({name: name}, {name: name})


# ── many ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ids_come_back_in_the_order_of_ten_thousand_jobs(
    database: Database, client: Client, onlooker: Onlooker
) -> None:
    jobs = (client.job({"n": n}, tenant=f"t{n * 7 % 100}", executor="work", priority=n % 9 + 1) for n in range(10_001))
    with database.connect() as conn:
        ids = client.enqueue_many(conn, jobs)
    assert [(job["id"], job["args"]["n"]) for job in onlooker.jobs()] == list(zip(ids, range(10_001), strict=True))
    assert onlooker.wake_ups() == [""]  # of three statements in one transaction


def test_no_jobs_need_no_statement(way: Way, onlooker: Onlooker) -> None:
    assert way.enqueue_many([]) == []
    way.commit()
    assert onlooker.wake_ups() == []


def test_statements_are_bounded_in_rows_and_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insert, "MAX_ROWS", 3)
    monkeypatch.setattr(insert, "MAX_BYTES", 250)

    def lengths(*sizes: int) -> list[int]:
        jobs = [NewJob(executor="w", tenant_id="t", args=msgspec.Raw(b'"' + b"x" * size + b'"')) for size in sizes]
        statements = insert.insert("millpond", iter(jobs))
        return [len(msgspec.json.decode(statement.params["jobs"])) for statement in statements]

    assert lengths(1, 1, 1, 1, 1, 1, 1) == [3, 3, 1]
    assert lengths(100, 100, 1, 100) == [1, 2, 1]
    assert lengths(1, 1_000, 1) == [1, 1, 1]
    assert lengths(1_000, 1) == [1, 1]


def test_jobs_are_consumed_as_they_are_sent(
    database: Database, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insert, "MAX_ROWS", 10)
    with database.connect() as conn:
        seen = []

        def jobs() -> Any:
            for n in range(25):
                query = sql.SQL("SELECT count(*) FROM {}.jobs").format(sql.Identifier(client.schema))
                seen.append(conn.execute(query).fetchone())
                yield client.job({"n": n}, tenant="t", executor="work")

        client.enqueue_many(conn, jobs())
    assert seen[0] == (0,)
    assert seen[-1] == (20,)


def test_only_jobs_that_were_checked_are_taken(database: Database, client: Client) -> None:
    unchecked: Any = [{"executor": "work"}]
    with database.connect() as conn, pytest.raises(InvalidJob, match=r"^jobs = .*client\.job"):
        client.enqueue_many(conn, unchecked)


# ── where ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("schema", ['We ird"x', "'; DROP SCHEMA public; --", "%s {schema} $1 :x", "é" * 31])
def test_two_installations_in_one_database_stay_apart(database: Database, client: Client, schema: str) -> None:
    upgrade(database.dsn, schema)
    other = Client(schema=schema)
    with database.connect() as conn:
        here = client.enqueue(conn, {"here": 1}, tenant="t", executor="work")
        there = other.enqueue(conn, {"there": 1}, tenant="t", executor="work")
        assert stored(conn, client.schema, "args", here) == '{"here": 1}'
        assert stored(conn, schema, "args", there) == '{"there": 1}'
    assert channel(schema) != channel(client.schema)


def test_without_notify_the_job_is_there_and_nobody_is_woken(way: Way, onlooker: Onlooker) -> None:
    quiet: Any = type(way.client)(schema=way.client.schema, notify=False)
    way.send(quiet, [quiet.job({}, tenant="t", executor="work")])
    way.commit()
    assert len(onlooker.jobs()) == 1
    assert onlooker.wake_ups() == []


DJANGO_ON_PSYCOPG2 = """
import os, sys
sys.modules["psycopg"] = None  # Django then takes psycopg2
import django, django.conf
names = ("NAME", "HOST", "PORT", "USER", "PASSWORD")
default = {"ENGINE": "django.db.backends.postgresql", **{name: os.environ["DB_" + name] for name in names}}
django.conf.settings.configure(DATABASES={"default": default})
django.setup()
from django.db import connection, transaction
from django.db.backends.postgresql import base
from django.db.backends.postgresql.psycopg_any import is_psycopg3
assert not is_psycopg3
del sys.modules["psycopg"]
from millpond.client import Client
client = Client(schema=os.environ["SCHEMA"])
with transaction.atomic():
    print(client.enqueue(connection, {"a": "%s"}, tenant="100 %", executor="work"))
try:
    with transaction.atomic():
        client.enqueue(connection, {}, tenant="t", executor="work")
        raise ZeroDivisionError
except ZeroDivisionError:
    pass
"""


def test_django_on_psycopg2(database: Database, onlooker: Onlooker) -> None:
    given = conninfo_to_dict(database.dsn)
    names = {"dbname": "NAME", "host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD"}
    environment = {f"DB_{name}": str(given.get(key) or "") for key, name in names.items()}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", DJANGO_ON_PSYCOPG2],
        env=os.environ | environment | {"SCHEMA": database.schema},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    [job] = onlooker.jobs()
    assert (str(job["id"]), job["args"], job["tenant_id"]) == (done.stdout.strip(), {"a": "%s"}, "100 %")
