"""Delays are bounded for every attempt there can be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millpond.retry import exponential, full_jitter, proportional_jitter

attempts = st.integers(min_value=-1, max_value=2**31)
seconds = st.floats(min_value=0, max_value=1e9)


def test_the_ceiling_doubles_up_to_its_cap() -> None:
    assert [exponential(n, 1.0, 10.0) for n in range(1, 7)] == [1, 2, 4, 8, 10, 10]


@given(attempts, seconds, seconds)
def test_no_attempt_overflows(attempt: int, base: float, cap: float) -> None:
    assert 0 <= exponential(attempt, base, cap) <= cap
    assert 0 <= full_jitter(attempt, base, cap) <= exponential(attempt, base, cap)
    assert 0 <= proportional_jitter(attempt, base, cap) <= cap


def test_jitter_spans_its_range() -> None:
    assert full_jitter(3, 1.0, 60.0, lambda low, high: low) == 0.0
    assert full_jitter(3, 1.0, 60.0, lambda low, high: high) == 4.0
    assert proportional_jitter(3, 1.0, 60.0, lambda low, high: low) == 3.6
    assert proportional_jitter(3, 1.0, 60.0, lambda low, high: high) == 4.4
