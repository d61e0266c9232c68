"""Args to JSON and back: checked before they are stored, decoded by the annotation of who gets them. Pure.

Encoding is optimistic: write the JSON, look over its bytes, and only where those raise a doubt walk the values to name
the one at fault by its path (`args.items[3].price`). Values are never shown in a message: args may hold secrets.

What is written as what: msgspec's rules for dataclasses, Structs, TypedDicts, dicts, datetimes (ISO 8601), UUIDs,
Decimals (text), enums (their value), bytes (base64), sets (lists); pydantic's own for pydantic models and dataclasses,
by alias and without computed fields, so that they validate again. Keys become text; of two that become the same, the
last one stays. Whole numbers may have as many digits as Python prints (4,300); jsonb keeps decimals, so a float of 1e22
comes back, undeclared, as a whole number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from inspect import Parameter
from typing import Any, Final, TypeAlias

import msgspec

from millpond.errors import ArgsTooLarge, InvalidArgs, InvalidExecutor, InvalidJob
from millpond.faults import fault_of, fault_of_name, stand_in, step_to
from millpond.job import MAX_NAME

SPEC: Final = "__millpond_args__"
"""Where a class keeps its ArgsSpec."""

DEFAULT_MAX_ARGS_BYTES: Final = 1_048_576
"""Longest args as JSON, in bytes, unless the client says otherwise."""

MAX_DEPTH: Final = 128
"""Deepest nesting of lists and objects. Pydantic's parser refuses 200 levels, Python's stack about 1,000, Postgres some
thousands: what is stored must be readable by all of them, from wherever in a call stack they are called."""

Decoder: TypeAlias = Callable[[str], object]
"""From the stored JSON to the value its executor asked for; raises InvalidArgs alone."""


# ── what an args class says of its jobs ──────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ArgsSpec:
    """What `@millpond.args` noted on a class."""

    executor: str
    """The key of the executor of such jobs."""
    defaults: Mapping[str, Any]
    """The executor and the options of such jobs, checked, by their field in NewJob; the call may override each."""


def find_spec(kind: type) -> ArgsSpec | None:
    """The spec of exactly this class. A subclass inherits none: under its base's key it would lose what it adds."""
    spec = vars(kind).get(SPEC)
    return spec if isinstance(spec, ArgsSpec) else None


def spec_of(kind: type) -> ArgsSpec:
    """The spec of exactly this class. Raises InvalidJob when it has none."""
    if (spec := find_spec(kind)) is None:
        raise InvalidJob("executor", kind, "has no executor key: decorate it with @millpond.args, or pass executor=.")
    return spec


def checked_name(field: str, value: object) -> str:
    """`value`, when it may be the name of a tenant, a queue or an executor; else an InvalidJob that says why not."""
    if (fault := fault_of_name(value, MAX_NAME)) is not None:
        raise InvalidJob(field, value, fault)
    return str.__str__(value)  # the text itself, of an enum's member or another subclass


# ── values → JSON ────────────────────────────────────────────────────────────────────────────────────────────────────


def encode(args: object, *, max_bytes: int = DEFAULT_MAX_ARGS_BYTES) -> msgspec.Raw:
    """The args as JSON that jsonb holds and every decoder reads, at most `max_bytes` of UTF-8.

    Raises InvalidArgs for what JSON or jsonb cannot hold, and ArgsTooLarge.
    """
    written = _written(args)
    if len(written) > max_bytes:
        raise ArgsTooLarge(len(written), max_bytes)
    # No more brackets than levels, no need to look closer.
    if written.count(b"{") + written.count(b"[") > MAX_DEPTH and _deeper_than(MAX_DEPTH, written):
        raise InvalidArgs("args", _TOO_DEEP)
    read = _read_back(written)
    if b"\\u0000" in written:
        _refuse_faults(read)
    if b"null" in written:  # None, or a NaN or an infinity, for which JSON has no word
        _refuse_faults(_plain(args))
    return msgspec.Raw(written)


_TOO_DEEP: Final = f"are nested deeper than {MAX_DEPTH} levels, or contain themselves; enqueue a reference instead."


def _written(args: object) -> bytes:
    serializer = getattr(type(args), "__pydantic_serializer__", None)
    try:
        return _ENCODER.encode(args) if serializer is None else _by_pydantic(serializer, args)
    except RecursionError as error:
        raise InvalidArgs("args", _TOO_DEEP) from error
    except Exception as error:
        _refuse_faults(_plain(args))
        raise InvalidArgs("args", f"cannot be written as JSON: {error}") from error


def _by_pydantic(serializer: Any, args: object) -> bytes:
    written: bytes = serializer.to_json(args, by_alias=True, round_trip=True)
    return written


def _read_back(written: bytes) -> object:
    """What a reader will get. Other serialisers, and msgspec.Raw, may have written anything; Postgres must not be the
    first to notice, because its error ends the caller's transaction."""
    try:
        return _ANYTHING.decode(written)
    except ValueError as error:
        raise InvalidArgs("args", f"were written as something that is not JSON: {error}") from error


def _simpler(value: object) -> object:
    """What msgspec does not take as it is, as something that it does."""
    if (serializer := getattr(type(value), "__pydantic_serializer__", None)) is not None:
        return serializer.to_python(value, mode="json", by_alias=True, round_trip=True)
    match value:
        case str():
            return str.__str__(value)
        case int() if not isinstance(value, bool):  # a bool comes here as a key only
            return int(value)
        case float():
            return float(value)
        case datetime():
            return value.isoformat()
        case Mapping():
            return dict(value)
    raise TypeError(f"{type(value).__qualname__} has no form in JSON")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_simpler)
_ANYTHING: Final = msgspec.json.Decoder(Any)


# ── depth ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"')
_ONE_KIND_OF_BRACKET: Final = bytes.maketrans(b"{}", b"[]")
_ALL_BUT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


def _deeper_than(levels: int, written: bytes) -> bool:
    """Whether lists and objects are nested deeper than this."""
    brackets = _STRING.sub(b"", written).translate(_ONE_KIND_OF_BRACKET, _ALL_BUT_BRACKETS)
    for _ in range(levels):
        brackets = brackets.replace(b"[]", b"")  # takes the innermost level away, everywhere
        if not brackets:
            return False
    return True


# ── naming the value at fault ────────────────────────────────────────────────────────────────────────────────────────


def _refuse_faults(value: object) -> None:
    try:
        fault = fault_of(value)
    except RecursionError as error:
        raise InvalidArgs("args", _TOO_DEEP) from error
    if fault is not None:
        raise InvalidArgs(f"args{fault.path}", fault.problem)


def _plain(args: object) -> object:
    """The args as dicts, lists and scalars, each as it would be written; with stand-ins for what cannot be."""
    try:
        return msgspec.to_builtins(args, enc_hook=_simpler_or_stand_in)
    except Exception:  # noqa: BLE001 - the values' own code may raise anything; the caller has an error to report already
        return None


def _simpler_or_stand_in(value: object) -> object:
    if (serializer := getattr(type(value), "__pydantic_serializer__", None)) is not None:
        return serializer.to_python(value, by_alias=True, round_trip=True, warnings=False)
    try:
        return _simpler(value)
    except Exception:  # noqa: BLE001 - as above
        return stand_in(type(value))


# ── JSON → values ────────────────────────────────────────────────────────────────────────────────────────────────────


def decoder(annotation: Any = Any) -> Decoder:
    """What decodes stored args to this type: a dataclass, Struct, TypedDict or pydantic class, or anything else msgspec
    decodes. Without an annotation: dicts, lists and scalars.

    Raises InvalidExecutor when nothing can decode to this type; the decoder itself raises InvalidArgs alone.
    """
    read = _reader(Any if annotation is Parameter.empty else annotation)

    def decode(stored: str) -> object:
        try:
            return read(stored)
        except InvalidArgs:
            raise
        except Exception as error:
            raise InvalidArgs(*_located(error)) from error

    return decode


def _reader(annotation: Any) -> Decoder:
    validator = getattr(annotation, "__pydantic_validator__", None)
    if validator is not None:
        return partial(_validated, validator)
    try:
        reader = msgspec.json.Decoder(annotation, dec_hook=_revived)
        told = msgspec.inspect.type_info(annotation)
    except Exception as error:
        raise InvalidExecutor(f"args are annotated {annotation!r}, which cannot be decoded: {error}") from error
    if isinstance(told, msgspec.inspect.CustomType) and not _revivable(told.cls):
        raise InvalidExecutor(
            f"args are annotated {annotation!r}, which cannot be decoded from JSON: "
            "use a dataclass, a pydantic model, a msgspec Struct, a TypedDict or a dict."
        )
    return reader.decode


def _validated(validator: Any, stored: str | bytes) -> object:
    try:
        return validator.validate_json(stored)
    except ValueError as error:
        if not hasattr(error, "errors"):
            raise
        first, *others = error.errors(include_url=False, include_context=False, include_input=False)
        path = "".join(f"[{step}]" if isinstance(step, int) else step_to(step) for step in first["loc"])
        more = f" (and {len(others)} more)" if others else ""
        raise InvalidArgs(f"args{path}", f"{first['msg']}{more}") from None  # its own text shows the values


def _revived(kind: type[Any], value: Any) -> object:
    """The reverse of _simpler: an instance of a class that msgspec does not know, from what JSON has of it."""
    if (validator := getattr(kind, "__pydantic_validator__", None)) is not None:
        return _validated(validator, _ENCODER.encode(value))
    if not _revivable(kind):
        raise TypeError(f"{kind.__qualname__} cannot be decoded from JSON")
    if kind is object:
        return value
    return kind.fromisoformat(value) if issubclass(kind, datetime) else kind(value)


def _revivable(kind: type[Any]) -> bool:
    return kind is object or issubclass(kind, str | int | float | datetime)


def _located(error: Exception) -> tuple[str, str]:
    """The path and the problem. msgspec tells the path in its message only; where it does not, the path is `args`."""
    problem, _, path = str(error).rpartition(" - at `$")
    return (f"args{path.removesuffix('`')}", problem) if problem else ("args", f"cannot be decoded: {error}")
