"""An exception as the error history keeps it: always storable, never long, whatever user code raised.

Postgres' jsonb refuses NUL and lone surrogates, and an exception may carry megabytes or raise from its own `__str__`.
None of that may keep a job from reaching a state.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Final

MAX_MESSAGE: Final = 4_096
MAX_TRACEBACK: Final = 12_288
"""Characters. Of what is longer, the head and the tail are kept, and the number of those left out is said."""

_MAX_FRAMES: Final = 40

_MAX_LINKS: Final = 5
"""Exceptions of a chain that are written, the last one included."""

_MAX_BELOW: Final = 5
"""Notes that are written, and exceptions of a group that are named."""

_MAX_SAID: Final = 500
"""Characters of the message of an exception that is not the last one."""

_HEAD: Final = "Traceback (most recent call last):\n"
_CAUSE: Final = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT: Final = "\nDuring handling of the above exception, another exception occurred:\n\n"


def described(error: BaseException) -> dict[str, str]:
    """Type, message and traceback of an exception; the traceback begins with those of what caused it."""
    return {
        "type": storable(type(error).__qualname__, MAX_MESSAGE),
        "message": storable(_message(error), MAX_MESSAGE),
        "traceback": storable(_traceback(error), MAX_TRACEBACK),
    }


def storable(text: str, limit: int = MAX_MESSAGE) -> str:
    """The text, shortened, without what Postgres cannot hold: NUL becomes ␀, a lone surrogate ?."""
    if len(text) > limit:
        half = limit // 2
        text = f"{text[:half]}… ({len(text) - 2 * half:,} characters left out) …{text[-half:]}"
    return text.replace("\0", "␀").encode("utf-8", "replace").decode()


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as second:  # noqa: BLE001 - whatever a user's __str__ raises, the first error must be stored
        return f"(its __str__ raised {type(second).__qualname__})"


def _traceback(error: BaseException) -> str:
    try:
        return _chain(error)
    except Exception:  # noqa: BLE001 - exceptions may have attributes of their own making; this one's frames remain
        return _frames(error)


def _chain(error: BaseException) -> str:
    """Oldest first, as Python prints it; of the last exception type and message are left out, being stored beside."""
    before = _before(error)
    earlier = "".join(f"{_HEAD}{_frames(link)}{_line(link)}\n{_below(link)}{joint}" for link, joint in before)
    return f"{earlier}{_HEAD if before else ''}{_frames(error)}{_below(error)}"


def _before(error: BaseException) -> list[tuple[BaseException, str]]:
    """What led to the exception, oldest first, each with the words that lead from it to the next."""
    links: list[tuple[BaseException, str]] = []
    seen = {id(error)}
    while len(links) < _MAX_LINKS - 1:
        earlier, joint = _led_to(error)
        if earlier is None or id(earlier) in seen:
            break
        links.append((earlier, joint))
        seen.add(id(earlier))
        error = earlier
    return links[::-1]


def _led_to(error: BaseException) -> tuple[BaseException | None, str]:
    if error.__cause__ is not None:
        return error.__cause__, _CAUSE
    return (None if error.__suppress_context__ else error.__context__), _CONTEXT


def _frames(error: BaseException) -> str:
    try:
        frames = traceback.extract_tb(error.__traceback__, -_MAX_FRAMES)
        # Without columns: finding out what to underline takes longer than all the rest of an attempt.
        return "".join(traceback.format_list([(f.filename, f.lineno or 0, f.name, f.line) for f in frames]))
    except Exception as second:  # noqa: BLE001 - a source file that cannot be read must not hide the error
        return f"(the traceback could not be written: {type(second).__qualname__})\n"


def _line(error: BaseException) -> str:
    return f"{type(error).__qualname__}: {storable(_message(error), _MAX_SAID)}"


def _below(error: BaseException) -> str:
    """What Python prints below the message: the notes, such as a child process' traceback, and who is in the group."""
    return "".join(f"{line}\n" for line in (*_notes(error), *_members(error)))


def _notes(error: BaseException) -> Iterator[str]:
    for note in getattr(error, "__notes__", [])[:_MAX_BELOW]:
        yield storable(str(note), MAX_MESSAGE)


def _members(error: BaseException) -> Iterator[str]:
    if isinstance(error, BaseExceptionGroup):
        yield from (f"  + {_line(each)}" for each in error.exceptions[:_MAX_BELOW])
        if (more := len(error.exceptions) - _MAX_BELOW) > 0:
            yield f"  + … and {more:,} more"
