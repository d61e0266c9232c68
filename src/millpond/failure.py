"""An exception as the error history keeps it: always storable, never long, whatever user code raised.

Postgres' jsonb refuses NUL and lone surrogates, and an exception may carry megabytes or raise from its own `__str__`.
None of that may keep a job from reaching a state.
"""

from __future__ import annotations

import traceback
from typing import Final

MAX_MESSAGE: Final = 4_096
MAX_TRACEBACK: Final = 12_288
"""Characters. Of what is longer, the head and the tail are kept, and the number of those left out is said."""

_MAX_FRAMES: Final = 40


def described(error: BaseException) -> dict[str, str]:
    """Type, message and traceback of an exception."""
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
        frames = traceback.extract_tb(error.__traceback__, -_MAX_FRAMES)
        # Without columns: finding out what to underline takes longer than all the rest of an attempt.
        return "".join(traceback.format_list([(f.filename, f.lineno or 0, f.name, f.line) for f in frames]))
    except Exception as second:  # noqa: BLE001 - a source file that cannot be read must not hide the error
        return f"(the traceback could not be written: {type(second).__qualname__})"
