"""How fairly turns were shared, told from their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stdlib_index.fairness import fairness, jain

BY_AGE = ["big"] * 50 + ["middle"] * 10 + ["small"] * 2
IN_TURN = ["big", "middle", "small"] * 2 + ["big", "middle"] * 8 + ["big"] * 40


def test_taking_turns_is_told_from_first_come_first_served() -> None:
    fair, unfair = fairness(IN_TURN, BY_AGE), fairness(BY_AGE, BY_AGE)
    assert fair is not None
    assert unfair is not None
    assert (fair.packages, fair.biggest, fair.biggest_files) == (3, "big", 50)
    assert (fair.ahead, fair.ahead_by_age) == (1, 50)
    assert (fair.compared, fair.fewest, fair.most) == (2, 10, 10)
    assert fair.index == 1
    assert (unfair.ahead, unfair.fewest, unfair.most) == (50, 0, 50)
    assert unfair.index == pytest.approx(1 / 2)


def test_only_the_stretch_in_which_all_of_the_big_had_files_waiting_counts() -> None:
    found = fairness(["a", "b"] * 5 + ["a"] * 20, BY_AGE)
    assert found is not None
    assert (found.fewest, found.most) == (5, 5)


@pytest.mark.parametrize("turns", [[], ["a"] * 9, ["a", "b", "c"], ["a"] * 9 + ["b"] * 4])
def test_too_few_turns_tell_nothing(turns: list[str]) -> None:
    assert fairness(turns, turns) is None


@given(st.lists(st.integers(0, 1_000), min_size=1).filter(any))
def test_jains_index_lies_between_one_for_all_and_one_for_each(shares: list[int]) -> None:
    assert 1 / len(shares) <= jain(shares) * (1 + 1e-9)
    assert jain(shares) <= 1 + 1e-9
    assert jain([1] * len(shares)) == 1
