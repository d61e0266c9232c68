"""When to try again: exponential backoff with jitter. Pure; randomness is a parameter."""

from __future__ import annotations

import random
from collections.abc import Callable

Uniform = Callable[[float, float], float]
"""Like `random.uniform`: a number between its two arguments."""

_MAX_EXPONENT = 1023
"""2.0 ** 1024 overflows a float; no cap in use is reached that late."""


def exponential(attempt: int, base: float, cap: float) -> float:
    """`base · 2^(attempt - 1)` seconds, at most `cap`, at least 0; attempt 1 is the first. Never overflows."""
    if base <= 0 or cap <= 0:
        return 0.0
    return min(cap, base * 2.0 ** min(max(attempt, 1) - 1, _MAX_EXPONENT))


def full_jitter(attempt: int, base: float, cap: float, uniform: Uniform = random.uniform) -> float:
    """Seconds, uniform in [0, exponential]: spreads a crowd the most. The pool's own retries use it."""
    return uniform(0.0, exponential(attempt, base, cap))


def proportional_jitter(attempt: int, base: float, cap: float, uniform: Uniform = random.uniform) -> float:
    """Seconds, exponential ± 10 %, at most `cap`: a steady rhythm. The store's retries use it."""
    return min(cap, exponential(attempt, base, cap) * uniform(0.9, 1.1))
