"""What is counted in a file."""

from __future__ import annotations

import pytest
from stdlib_index.reading import Reading, read

SOURCE = b'''"""The module."""

class Outer:
    """Documented."""

    def method(self): ...

    async def other(self):
        """Documented."""
        def inner():
            pass
        return [lambda x: x]

if True:
    try:
        def hidden(): "documented"
    except OSError:
        class Deep: pass

match 1:
    case 1:
        def matched(): ...
'''


def test_every_function_and_class_is_counted_however_deep() -> None:
    assert read(SOURCE, "source.py") == Reading(lines=22, functions=5, classes=2, documented=4)


def test_an_empty_file_holds_nothing() -> None:
    assert read(b"", "empty.py") == Reading(lines=0, functions=0, classes=0, documented=0)


def test_the_declared_encoding_is_heeded() -> None:
    assert read('# coding: latin-1\n"""Ärger."""\n'.encode("latin-1"), "latin.py").documented == 1


@pytest.mark.parametrize("source", [b"def f(:", b"print 'two'", b"\xff\xfe", b"# coding: no-such\n"])
def test_what_is_no_python_is_refused_by_name(source: bytes) -> None:
    with pytest.raises(SyntaxError) as refused:
        read(source, "/some/where.py")
    assert "where.py" in str(refused.value)


def test_others_code_gives_no_warnings() -> None:
    assert read(rb'x = "\d"; y = 1 is 1', "sloppy.py").lines == 1
