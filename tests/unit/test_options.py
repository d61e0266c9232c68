"""What may be said of a job: where it is said, its bounds, and the errors that name them."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
import typing_extensions

from millpond.client import AsyncClient, Client
from millpond.errors import InvalidJob, SettingsError
from millpond.job import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, DEFAULT_QUEUE
from millpond.options import args
from millpond.payload import find_spec, spec_of

client = Client()


@args("sync_orders", max_attempts=10, queue="slow", priority=5, timeout=timedelta(minutes=1))
@dataclass(frozen=True)
class SyncOrders:
    since: int = 0


class More(SyncOrders):
    """Adds something that the executor of SyncOrders knows nothing of."""


class Queue(StrEnum):
    MAIL = "mail"


class Level(IntEnum):
    HIGH = 3


class Moment(datetime):
    """A datetime of a library's own."""


# ── where it is said ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_class_says_and_the_call_says_otherwise() -> None:
    job = client.job(SyncOrders(), tenant="acme")
    assert (job.executor, job.tenant_id, bytes(job.args)) == ("sync_orders", "acme", b'{"since":0}')
    assert (job.queue, job.priority, job.max_attempts, job.timeout) == ("slow", 5, 10, 60.0)
    job = client.job(SyncOrders(), tenant="acme", executor="other", queue="fast", priority=1, max_attempts=2, timeout=3)
    assert (job.executor, job.queue, job.priority, job.max_attempts, job.timeout) == ("other", "fast", 1, 2, 3.0)


def test_what_nobody_says_is_the_default() -> None:
    job = client.job({}, tenant="acme", executor="work")
    assert (job.queue, job.priority, job.max_attempts) == (DEFAULT_QUEUE, DEFAULT_PRIORITY, DEFAULT_MAX_ATTEMPTS)
    assert (job.scheduled_at, job.delay, job.timeout, job.metadata) == (None, None, None, {})


def test_none_is_as_if_it_were_not_said() -> None:
    nothing: Any = dict.fromkeys(("executor", "queue", "priority", "scheduled_at", "delay", "timeout", "metadata"))
    assert client.job(SyncOrders(), tenant="acme", **nothing) == client.job(SyncOrders(), tenant="acme")


def test_every_kind_of_class_can_say_it() -> None:
    @args("a")
    class Model(pydantic.BaseModel):
        x: int

    @args("b")
    class Structure(msgspec.Struct):
        x: int

    @dataclass(slots=True)  # makes a new class of the decorated one
    @args("c")
    class Slotted:
        x: int

    assert [spec_of(each).executor for each in (Model, Structure, Slotted)] == ["a", "b", "c"]
    assert bytes(client.job(Model(x=1), tenant="t").args) == b'{"x":1}'
    assert bytes(client.job(Structure(x=1), tenant="t").args) == b'{"x":1}'
    assert bytes(client.job(Slotted(x=1), tenant="t").args) == b'{"x":1}'


def test_a_subclass_says_nothing() -> None:
    assert find_spec(More) is None
    with pytest.raises(InvalidJob, match=r"executor = .*More.*@millpond\.args"):
        client.job(More(), tenant="t")


@pytest.mark.parametrize("anything", [{}, [], 3, object()])
def test_args_without_an_executor_key_are_refused(anything: object) -> None:
    with pytest.raises(InvalidJob, match=r"^executor = .*has no executor key: decorate .*, or pass executor="):
        client.job(anything, tenant="t")


def test_an_option_that_is_none_is_named() -> None:
    wrong: Any = {"prioritty": 1}
    with pytest.raises(TypeError, match="'prioritty' is not an option of a job; these are: executor, queue, priority"):
        client.job({}, tenant="t", executor="work", **wrong)
    with pytest.raises(TypeError, match="prioritty"):
        args("work", **wrong)


def test_options_of_a_class_are_checked_when_it_is_made() -> None:
    with pytest.raises(InvalidJob, match="priority"):
        args("work", priority=0)
    with pytest.raises(InvalidJob, match="executor"):
        args("")


class Titled(TypedDict):
    n: int


class TitledElsewhere(typing_extensions.TypedDict):
    n: int


@pytest.mark.parametrize("kind", [Titled, TitledElsewhere])
def test_a_typed_dict_cannot_carry_a_key(kind: Any) -> None:
    with pytest.raises(InvalidJob, match=r"Titled.*is a TypedDict, .*pass executor= at the call"):
        args("work")(kind)


@pytest.mark.parametrize("thing", [test_a_typed_dict_cannot_carry_a_key, SyncOrders(), None])
def test_what_is_no_class_cannot_carry_a_key(thing: Any) -> None:
    with pytest.raises(InvalidJob, match=r"is not a class: decorate the args class"):
        args("work")(thing)


@pytest.mark.parametrize("kind", [SyncOrders, Titled, dict])
def test_a_class_is_not_an_instance(kind: type) -> None:
    with pytest.raises(InvalidJob, match=rf"is a class; pass an instance of it: {kind.__name__}\(\.\.\.\)"):
        client.job(kind, tenant="t", executor="work")


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ({"fine": "x", "wrong": 1}, r"^metadata\.wrong = 1: must be a text, not int"),
        ({"not an identifier": "\0"}, r"^metadata\['not an identifier'\] = .*contains NUL"),
        ({1: "x"}, r"^metadata \(a key\) = 1: must be a text, not int"),
        ({"\ud800": "x"}, r"^metadata \(a key\) = '\\ud800': contains a lone surrogate"),
    ],
)
def test_the_metadata_at_fault_is_named(metadata: Any, named: str) -> None:
    with pytest.raises(InvalidJob, match=named):
        client.job({}, tenant="t", executor="work", metadata=metadata)


def test_options_are_copied() -> None:
    metadata = {"a": "b"}
    job = client.job({}, tenant="t", executor="work", metadata=metadata)
    metadata["a"] = "c"
    assert job.metadata == {"a": "b"}
    other = client.job({}, tenant="t", executor="work")
    other.metadata["x"] = "y"
    assert client.job({}, tenant="t", executor="work").metadata == {}


# ── bounds ───────────────────────────────────────────────────────────────────────────────────────────────────────────

UNFIT_NAMES = ["", "x" * 256, "a\0b", "\ud800", None, 3, b"bytes"]


@pytest.mark.parametrize("name", UNFIT_NAMES)
def test_tenants_are_checked(name: Any) -> None:
    with pytest.raises(InvalidJob, match=r"^tenant = ") as caught:
        client.job({}, tenant=name, executor="work")
    assert caught.value.field == "tenant"
    assert caught.value.value is name


@pytest.mark.parametrize("field", ["executor", "queue"])
@pytest.mark.parametrize("name", [name for name in UNFIT_NAMES if name is not None])
def test_keys_and_queues_are_checked(field: str, name: Any) -> None:
    options: Any = {"executor": "work", field: name}
    with pytest.raises(InvalidJob, match=rf"^{field} = "):
        client.job({}, tenant="t", **options)


@pytest.mark.parametrize("name", ["x", "é" * 255, "'; DROP TABLE jobs; --", '"', " ", "𐍈"])
def test_any_other_text_is_a_name(name: str) -> None:
    job = client.job({}, tenant=name, executor=name, queue=name)
    assert (job.tenant_id, job.executor, job.queue) == (name, name, name)


ZONES = [UTC, timezone(timedelta(hours=14)), timezone(-timedelta(hours=12))]

UNFIT: dict[str, list[Any]] = {
    "priority": [0, -1, 32_768, 1.0, True, "1"],
    "max_attempts": [0, -1, 32_768, 1.5, True, "1"],
    "timeout": [0, -1, float("nan"), float("inf"), True, "1", 10**400, timedelta(0), timedelta(days=4000)],
    "delay": [-0.1, float("nan"), float("inf"), True, "1", 10**400, timedelta(seconds=-1), timedelta(days=4000)],
    "scheduled_at": [
        datetime(2026, 1, 1),
        "2026-01-01",
        0,
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=5))),
        *(extreme.replace(tzinfo=zone) for extreme in (datetime.min, datetime.max) for zone in ZONES),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=timezone(timedelta(hours=1))),
        datetime(9999, 12, 31, tzinfo=UTC),
    ],
    "metadata": [["a"], "ab", {"a": 1}, {1: "a"}, {"a": "\0"}, {"\ud800": "a"}, {"a": "x" * 16_384}],
}


@pytest.mark.parametrize(("field", "value"), [(field, value) for field, values in UNFIT.items() for value in values])
def test_options_are_checked(field: str, value: Any) -> None:
    options: Any = {field: value}
    with pytest.raises(InvalidJob, match=rf"^{field}.* = .*: ") as caught:
        client.job({}, tenant="t", executor="work", **options)
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("field", "value", "stored"),
    [
        ("priority", 1, 1),
        ("priority", 32_767, 32_767),
        ("priority", Level.HIGH, 3),
        ("queue", Queue.MAIL, "mail"),
        ("max_attempts", 1, 1),
        ("timeout", 0.001, 0.001),
        ("timeout", timedelta(hours=1), 3600.0),
        ("delay", 0, 0.0),
        ("delay", timedelta(days=3650), 3650 * 86_400.0),
        (
            "scheduled_at",
            datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
            datetime(2026, 1, 1, tzinfo=UTC),
        ),
        ("scheduled_at", Moment(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
        ("scheduled_at", datetime(1970, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)),
        (
            "scheduled_at",
            datetime(9999, 12, 30, 23, 59, 59, 999_999, tzinfo=UTC),
            datetime(9999, 12, 30, 23, 59, 59, 999_999, tzinfo=UTC),
        ),
        ("metadata", MappingProxyType({"a": "é"}), {"a": "é"}),
        ("metadata", {"a": "x" * 16_383}, {"a": "x" * 16_383}),
    ],
)
def test_options_at_their_bounds(field: str, value: Any, stored: Any) -> None:
    options: Any = {field: value}
    job = client.job({}, tenant="t", executor="work", **options)
    assert getattr(job, field) == stored
    assert type(getattr(job, field)) is type(stored)


def test_a_job_is_due_in_one_way_only() -> None:
    with pytest.raises(InvalidJob, match="scheduled_at"):
        client.job({}, tenant="t", executor="work", delay=1, scheduled_at=datetime.now(UTC))


def test_a_value_in_a_message_is_short() -> None:
    with pytest.raises(InvalidJob) as caught:
        client.job({}, tenant="x" * 1_000_000, executor="work")
    assert len(str(caught.value)) < 200


# ── the clients themselves ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_is_its_options_and_nothing_else(kind: type[Client | AsyncClient]) -> None:
    made = kind(schema="x", max_args_bytes=100, notify=False)
    assert pickle.loads(pickle.dumps(made)) == made == kind(schema="x", max_args_bytes=100, notify=False)
    assert not hasattr(made, "__dict__")
    with pytest.raises(AttributeError):
        made.schema = "y"  # type: ignore[misc]


@pytest.mark.parametrize(
    "options",
    [
        {"schema": ""},
        {"schema": "x" * 64},
        {"schema": "a\0"},
        {"schema": "pg_x"},
        {"max_args_bytes": 1},
        {"notify": "no"},
    ],
)
@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_client_s_options_are_checked(kind: type[Client | AsyncClient], options: Any) -> None:
    with pytest.raises(SettingsError, match=next(iter(options))):
        kind(**options)
