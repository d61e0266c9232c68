"""Args as JSON: what is written as what, and the fault of what cannot be, named by its path."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from types import MappingProxyType
from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millpond.errors import ArgsTooLarge, InvalidArgs, InvalidExecutor, InvalidJob
from millpond.payload import MAX_DEPTH, decoder, encode


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Word(str):
    """A text of a library's own, such as Django's SafeString."""

    __slots__ = ()


class Moment(datetime):
    """A datetime of a library's own, such as pendulum's."""


@dataclass(frozen=True)
class Item:
    price: float
    note: object = None


@dataclass(frozen=True)
class Order:
    items: list[Item] = field(default_factory=list)


class Point(msgspec.Struct):
    x: int


class Page(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    number: int = pydantic.Field(default=1, alias="pageNumber")
    content: Any = None

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def next(self) -> int:
        return self.number + 1


@pydantic.dataclasses.dataclass
class Form:
    name: str = pydantic.Field(default="x", alias="formName")


@dataclass
class Mixed:
    page: Page
    form: Form | None = None


class Loose(TypedDict):
    a: int


def written(args: object) -> Any:
    return json.loads(bytes(encode(args)))


# ── what is written ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (Order([Item(1.5)]), {"items": [{"price": 1.5, "note": None}]}),
        (Point(1), {"x": 1}),
        (Page(pageNumber=2), {"pageNumber": 2, "content": None}),
        (Form(formName="y"), {"formName": "y"}),
        (Loose(a=1), {"a": 1}),
        (
            {"at": datetime(2026, 1, 2, tzinfo=UTC), "on": date(2026, 1, 2)},
            {"at": "2026-01-02T00:00:00Z", "on": "2026-01-02"},
        ),
        ({"in": timedelta(seconds=5)}, {"in": "PT5S"}),
        ({"id": UUID(int=1)}, {"id": "00000000-0000-0000-0000-000000000001"}),
        ({"sum": Decimal("1.10")}, {"sum": "1.10"}),
        ({"raw": b"abc"}, {"raw": "YWJj"}),
        ({"c": Colour.RED, "l": Level.HIGH, Colour.RED: 1}, {"c": "red", "l": 3, "red": 1}),
        ({"set": {1}, "tuple": (1, 2), 5: "five"}, {"set": [1], "tuple": [1, 2], "5": "five"}),
        (
            {"word": Word("w"), "map": MappingProxyType({"a": 1}), "dict": OrderedDict(a=1)},
            {"word": "w", "map": {"a": 1}, "dict": {"a": 1}},
        ),
        ({"moment": Moment(2026, 1, 2, tzinfo=UTC)}, {"moment": "2026-01-02T00:00:00+00:00"}),
        ({"big": 2**70, "small": -(2**70)}, {"big": 2**70, "small": -(2**70)}),
        ({"page": Page()}, {"page": {"pageNumber": 1, "content": None}}),
        ({"literally": "\\u0000 and null"}, {"literally": "\\u0000 and null"}),
    ],
)
def test_what_is_written_as_what(args: object, expected: object) -> None:
    assert written(args) == expected


@pytest.mark.parametrize(
    "args",
    [
        Order([Item(1.5, "é")]),
        Point(1),
        Page(pageNumber=2, content=[1]),
        Form(formName="y"),
        Mixed(Page(pageNumber=2), Form(formName="y")),
    ],
)
def test_args_come_back_as_they_were(args: object) -> None:
    assert decoder(type(args))(bytes(encode(args)).decode()) == args


def test_encoding_changes_nothing() -> None:
    args = {"items": [{"a": None}], "page": Page(content={"b": [1]})}
    before = repr(args)
    encode(args)
    assert repr(args) == before


def test_later_changes_of_the_args_change_no_job() -> None:
    args = {"a": [1]}
    encoded = encode(args)
    args["a"].append(2)
    assert bytes(encoded) == b'{"a":[1]}'


# ── what is refused, and how it is named ─────────────────────────────────────────────────────────────────────────────

NAN = math.nan


@pytest.mark.parametrize(
    ("args", "message"),
    [
        # what JSON has no word for
        (Order([Item(1.0), Item(NAN)]), r"^args\.items\[1\]\.price: is nan"),
        ({"a": {"b": (1, math.inf)}}, r"^args\.a\.b\[1\]: is inf"),
        (Page(content=[-math.inf]), r"^args\.content\[0\]: is -inf"),
        (Mixed(Page(content={"x": NAN})), r"^args\.page\.content\.x: is nan"),
        ({"a": None, "b": NAN}, r"^args\.b: is nan"),
        # what Postgres cannot store
        ({"a": ["b", "c\0"]}, r"^args\.a\[1\]: contains NUL"),
        ({"a": {"b\0": 1}}, r"^args\.a\['b\\x00'\]: has a key that contains NUL"),
        (Item(1.0, Word("\0")), r"^args\.note: contains NUL"),
        (Page(content="\0"), r"^args\.content: contains NUL"),
        ({"a": msgspec.Raw(b'"\\u0000"')}, r"^args\.a: contains NUL"),
        ({"a": ["\ud800"]}, r"^args\.a\[0\]: contains a lone surrogate"),
        ({"a": {"\udfff": 1}}, r"^args\.a\['\\udfff'\]: has a key that contains a lone surrogate"),
        (Page(content={"a": "\ud800"}), r"^args\.content\.a: contains a lone surrogate"),
        # what has no form in JSON
        ({"a": [object()]}, r"^args\.a\[0\]: is of type object, for which JSON has no form"),
        (Item(1.0, {"f": print}), r"^args\.note\.f: is of type builtin_function_or_method"),
        (Mixed(Page(content=[object()])), r"^args\.page\.content\[0\]: is of type object"),
        (Page(content=[object()]), r"^args\.content\[0\]: is of type object"),
        (object(), r"^args: is of type object"),
        (Order, r"^args: is of type type"),
        ((n for n in "ab"), r"^args: is of type generator"),
        ({"a": {(1, 2): 3}}, r"^args\.a\[<tuple>\]: has a key that is of type tuple"),
        ({None: 1}, r"^args\[<NoneType>\]: has a key that is of type NoneType"),
        ({True: 1}, r"^args\[True\]: has a key that is of type bool"),
        ({"a": 10**5000}, r"^args: cannot be written as JSON: .*4300 digits"),
        # what others wrote
        ({"a": msgspec.Raw(b"NaN")}, r"^args: were written as something that is not JSON"),
        ({"a": msgspec.Raw(b'"\\ud800"')}, r"^args: were written as something that is not JSON"),
        ({"a": msgspec.Raw(b'"\xff"')}, r"^args: were written as something that is not JSON"),
        ({"a": msgspec.Raw(b"1e999999")}, r"^args: were written as something that is not JSON"),
        # paths
        ({"x y": {"z" * 60: ["\0"]}}, r"^args\['x y'\]\['z+…\]\[0\]: contains NUL"),
        ({5: "\0"}, r"^args\['5'\]: contains NUL"),
    ],
)
def test_the_value_at_fault_is_named_by_its_path(args: object, message: str) -> None:
    with pytest.raises(InvalidArgs, match=message) as caught:
        encode(args)
    assert isinstance(caught.value, InvalidJob | TypeError | ValueError)
    assert str(caught.value).startswith(f"{caught.value.field}: ")


def test_no_message_shows_a_value() -> None:
    for args in ({"a": "hunter2\0"}, {"a": "hunter2\ud800"}, {"a": Word("hunter2\0")}):
        with pytest.raises(InvalidArgs) as caught:
            encode(args)
        assert "hunter2" not in str(caught.value)
    for annotation, stored in (
        (Item, '{"price": "hunter2"}'),
        (Page, '{"pageNumber": "hunter2"}'),
        (Mixed, '{"page": {"x": "hunter2"}}'),
    ):
        with pytest.raises(InvalidArgs) as caught:
            decoder(annotation)(stored)
        assert "hunter2" not in f"{caught.value}{caught.value.__cause__}"


def test_code_of_the_values_that_raises_is_contained() -> None:
    class Bad(pydantic.BaseModel):
        @pydantic.model_serializer
        def bad(self) -> dict[str, Any]:
            raise KeyError("oops")

    with pytest.raises(InvalidArgs, match=r"^args: cannot be written as JSON"):
        encode(Bad())
    with pytest.raises(InvalidArgs, match=r"^args: cannot be written as JSON"):
        encode({"a": Bad()})


def nested(depth: int, around: Any = 0) -> Any:
    for _ in range(depth):
        around = [around] if depth % 2 else {"a": around}
    return around


@pytest.mark.parametrize("extra", [0, 1])
def test_args_may_be_nested_as_deep_as_every_reader_reads(extra: int) -> None:
    depth = MAX_DEPTH - extra
    args = nested(depth)
    assert decoder()(bytes(encode(args)).decode()) == args
    wide = [nested(depth - 1), *([[]] * 1000), "[[{" * 1000, '\\"[[']
    assert decoder()(bytes(encode(wide)).decode()) == wide


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, MAX_DEPTH + 2, 900, 100_000])
def test_args_that_are_nested_deeper_are_refused(depth: int) -> None:
    args = nested(depth)
    with pytest.raises(InvalidArgs, match=r"^args: are nested deeper than 128 levels"):
        encode(args)
    while args:  # taken apart from outside: Python would free them recursively
        args = args[0] if isinstance(args, list) else args["a"]


def test_a_value_at_fault_below_all_that_can_be_read_is_refused_too() -> None:
    with pytest.raises(InvalidArgs, match=r"^args: are nested deeper than 128 levels"):
        encode(nested(700, object()))


def test_args_that_contain_themselves_are_refused() -> None:
    args: dict[str, Any] = {}
    args["self"] = [args]
    with pytest.raises(InvalidArgs, match="contain themselves"):
        encode(args)
    page = Page()
    page.content = [page]
    with pytest.raises(InvalidArgs):
        encode(page)


def test_the_limit_is_in_bytes_and_exact() -> None:
    assert len(bytes(encode({"a": "é" * 10}, max_bytes=28))) == 28
    with pytest.raises(ArgsTooLarge, match=r"take 28 bytes as JSON; the limit is 27") as caught:
        encode({"a": "é" * 10}, max_bytes=27)
    assert (caught.value.size, caught.value.limit) == (28, 27)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec=None)), inner),
    max_leaves=20,
)


@given(VALUES)
def test_exactly_what_every_reader_reads_is_accepted(args: object) -> None:
    if has_fault(args):
        with pytest.raises(InvalidArgs):
            encode(args)
    else:
        assert decoder()(bytes(encode(args)).decode()) == args


def has_fault(args: object) -> bool:
    match args:
        case float():
            return not math.isfinite(args)
        case str():
            return any(each == "\0" or "\ud800" <= each <= "\udfff" for each in args)
        case list():
            return any(map(has_fault, args))
        case dict():
            return any(map(has_fault, [*args.keys(), *args.values()]))
    return False


# ── what is read ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("annotation", "stored", "message"),
    [
        (Order, '{"items": [{"price": 1}, {"price": "x"}]}', r"^args\.items\[1\]\.price: Expected `float`, got `str`"),
        (Item, "{}", r"^args: cannot be decoded: Object missing required field `price`"),
        (
            Page,
            '{"pageNumber": "x", "other": 1}',
            r"^args\.pageNumber: Input should be a valid integer.* \(and 1 more\)",
        ),
        (Page, "{", r"^args: Invalid JSON"),
        (list[Page], '[{}, {"pageNumber": "x"}]', r"^args\[1\]: .*pageNumber: Input should be"),
        (Loose, '{"a": "x"}', r"^args\.a: Expected `int`"),
        (dict, "[]", r"^args: cannot be decoded: Expected `object`"),
        (Any, "{", r"^args: cannot be decoded: Input data was truncated"),
        (Any, "[" * 100_000, r"^args: cannot be decoded: .*recursion"),
        (Page, "[" * 100_000, r"^args: Invalid JSON: recursion"),
    ],
)
def test_what_does_not_fit_is_named_by_its_path(annotation: Any, stored: str, message: str) -> None:
    with pytest.raises(InvalidArgs, match=message):
        decoder(annotation)(stored)


def test_without_an_annotation_json_is_what_it_is() -> None:
    assert decoder()('{"a": [1, 2.5, null]}') == {"a": [1, 2.5, None]}


def test_types_of_other_libraries_come_back() -> None:
    @dataclass
    class Strange:
        word: Word
        moment: Moment

    args = Strange(Word("w"), Moment(2026, 1, 2, tzinfo=UTC))
    back: Any = decoder(Strange)(bytes(encode(args)).decode())
    assert back == args
    assert (type(back.word), type(back.moment)) == (Word, Moment)


def test_an_error_of_the_args_own_checks_is_contained() -> None:
    @dataclass
    class Checked:
        a: int

        def __post_init__(self) -> None:
            raise KeyError(self.a)

    with pytest.raises(InvalidArgs, match=r"^args: cannot be decoded"):
        decoder(Checked)('{"a": 1}')


class Unknown:
    """Nothing that JSON could be decoded to."""


@pytest.mark.parametrize("annotation", [Unknown, print, "Order", list[Any] | set[Any]])
def test_what_nothing_decodes_to_is_refused_at_once(annotation: Any) -> None:
    with pytest.raises(InvalidExecutor, match="cannot be decoded"):
        decoder(annotation)


def test_what_nothing_decodes_to_inside_the_args_is_named() -> None:
    @dataclass
    class Holder:
        a: Unknown

    with pytest.raises(InvalidArgs, match=r"^args\.a: Unknown cannot be decoded from JSON"):
        decoder(Holder)('{"a": 1}')
