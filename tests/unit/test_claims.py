"""Claim tokens."""

from __future__ import annotations

from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from millpond.store.claims import MAX_CLAIMS, claim_token
from millpond.worker.registration import Registration

numbers = st.integers(min_value=1, max_value=2**31 - 1)
counts = st.integers(min_value=1, max_value=MAX_CLAIMS)


@given(numbers, counts, numbers, counts)
def test_tokens_of_two_registrations_never_meet(number: int, count: int, other: int, other_count: int) -> None:
    same = (number, count) == (other, other_count)
    assert (claim_token(number, count) == claim_token(other, other_count)) is same


@given(numbers, counts)
def test_a_token_fits_in_a_bigint(number: int, count: int) -> None:
    assert 0 < claim_token(number, count) < 2**63


def test_a_registration_never_repeats_a_token() -> None:
    registration = Registration(uuid4(), 3)
    tokens = [registration.next_token() for _ in range(1000)]
    assert len(set(tokens)) == 1000
    assert not registration.exhausted
