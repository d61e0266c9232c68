"""Logging that cannot do harm: a handler that raises must not end a runner, or keep an outcome from being told."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any


class Unfailing(logging.LoggerAdapter[logging.Logger]):
    """A logger whose handlers may raise."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        kwargs.setdefault("stacklevel", 2)  # the caller's line, not this one
        with suppress(Exception):
            super().log(level, msg, *args, **kwargs)


def logger_of(module: str) -> Unfailing:
    """The module's logger."""
    return Unfailing(logging.getLogger(module), {})
