"""What application code may say of a job, on its args class and at the call; checked, and made into a NewJob. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, TypedDict, TypeVar, Unpack

from millpond.errors import InvalidJob
from millpond.faults import fault_of_text, step_to
from millpond.job import NewJob
from millpond.payload import SPEC, ArgsSpec, checked_name, encode, find_spec, spec_of
from millpond.settings import MAX_SECONDS

C = TypeVar("C", bound=type)

EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(9999, 12, 30, tzinfo=UTC)
"""Between these a moment can be read back whatever the time zone of the reader's session and of its machine. Python has
no year 10000, which comes up to a day earlier in the east; and moments before 1970 have no local time on some systems,
while jobs that old are mistakes, or mean "now", for which scheduled_at is left out."""

MAX_METADATA_BYTES: Final = 16_384
"""Keys and values of one job's metadata, together."""


class ArgsOptions(TypedDict, total=False):
    """What an args class may say of all its jobs; the call may say otherwise."""

    queue: str
    """1 to 255 characters; "default" unless said."""
    priority: int
    """1 to 32,767, and 1 is first; 100 unless said. It orders a tenant's own jobs only."""
    max_attempts: int
    """1 to 32,767; 25 unless said."""
    timeout: float | timedelta | None
    """Seconds that one attempt may take; the executor's, else the worker's, unless said."""


class JobOptions(ArgsOptions, total=False):
    """What the call may say of a job. None is as if it were not said."""

    executor: str | None
    """The executor key, for args whose class does not tell."""
    scheduled_at: datetime | None
    """The moment from which the job may run; aware, from 1970 to 9999-12-30. One that has passed is as good as none."""
    delay: float | timedelta | None
    """Seconds from the database's now, instead of scheduled_at; at most ten years."""
    metadata: Mapping[str, str] | None
    """Texts to travel with the job, at most 16 KiB in all."""


def args(executor: str, **options: Unpack[ArgsOptions]) -> Callable[[C], C]:
    """Decorate a dataclass, pydantic model or msgspec Struct with the key of its executor, and options for its jobs.

    Raises InvalidJob when the key or an option is out of bounds, or when what is decorated is no such class.
    """
    key = checked_name("executor", executor)
    spec = ArgsSpec(key, {"executor": key, **_checked(options)})

    def note(kind: C) -> C:
        _refuse_useless(kind)
        setattr(kind, SPEC, spec)
        return kind

    return note


def _refuse_useless(kind: object) -> None:
    """A key must be where the args' type leads to it."""
    if not isinstance(kind, type):
        raise InvalidJob("args", kind, "is not a class: decorate the args class; a function, with registry.executes.")
    if issubclass(kind, dict) and hasattr(kind, "__required_keys__"):  # a TypedDict, typing's or typing_extensions'
        raise InvalidJob("args", kind, "is a TypedDict, whose values are plain dicts: pass executor= at the call.")


def new_job(args: object, *, tenant: str, options: JobOptions, max_args_bytes: int) -> NewJob:
    """The job as asked for: args encoded, options checked. Raises InvalidJob, InvalidArgs, ArgsTooLarge."""
    if isinstance(args, type):
        raise InvalidJob("args", args, f"is a class; pass an instance of it: {args.__name__}(...).")
    asked = _checked(options) if options else {}
    if (spec := find_spec(type(args))) is not None:
        asked = {**spec.defaults, **asked}
    elif "executor" not in asked:
        spec_of(type(args))  # says what is missing
    if "delay" in asked and "scheduled_at" in asked:
        raise InvalidJob("delay", asked["delay"], "says when to run, and so does scheduled_at; give one of them.")
    return NewJob(args=encode(args, max_bytes=max_args_bytes), tenant_id=checked_name("tenant", tenant), **asked)


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that say something, in their final form: by their field in NewJob."""
    return {name: _check_of(name)(name, value) for name, value in options.items() if value is not None}


def _check_of(name: str) -> Callable[[str, object], object]:
    try:
        return _CHECKS[name]
    except KeyError:
        raise TypeError(f"{name!r} is not an option of a job; these are: {', '.join(_CHECKS)}.") from None


def _whole(field: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MAX_SMALL:
        raise InvalidJob(field, value, f"must be a whole number from 1 to {_MAX_SMALL:,}.")
    return int(value)


def _seconds(field: str, value: object, *, at_least: float) -> float:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not at_least <= seconds <= MAX_SECONDS:
        raise InvalidJob(field, value, f"must be a timedelta, or seconds, from {at_least:g} to {MAX_SECONDS:,.0f}.")
    return float(seconds)


def _moment(field: str, value: object) -> datetime:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidJob(field, value, "must be a datetime with a time zone: datetime.now(UTC), for one.")
    if not EARLIEST <= value < LATEST + timedelta(days=1):
        raise InvalidJob(field, value, f"must be from {EARLIEST:%Y-%m-%d} to {LATEST:%Y-%m-%d} in UTC.")
    moment = value.astimezone(UTC)
    return datetime.combine(moment.date(), moment.time(), UTC)  # a plain datetime, whatever subclass came in


def _metadata(field: str, value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidJob(field, value, "must be a mapping of texts to texts.")
    plain = {_text(f"{field} (a key)", key): _text(f"{field}{step_to(key)}", text) for key, text in value.items()}
    size = sum(len(key.encode()) + len(text.encode()) for key, text in plain.items())
    if size > MAX_METADATA_BYTES:
        raise InvalidJob(field, value, f"takes {size:,} bytes; the limit is {MAX_METADATA_BYTES:,}. Use args instead.")
    return plain


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidJob(field, value, f"must be a text, not {type(value).__qualname__}.")
    if (fault := fault_of_text(value)) is not None:
        raise InvalidJob(field, value, fault)
    return str.__str__(value)


_MAX_SMALL: Final = 32_767
"""The largest smallint: what the column of priorities holds."""

_CHECKS: Final[Mapping[str, Callable[[str, object], object]]] = {
    "executor": checked_name,
    "queue": checked_name,
    "priority": _whole,
    "max_attempts": _whole,
    "scheduled_at": _moment,
    "delay": partial(_seconds, at_least=0.0),
    "timeout": partial(_seconds, at_least=0.001),
    "metadata": _metadata,
}
