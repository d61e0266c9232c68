"""How fairly the packages' turns were shared: told from the order in which files were read. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

_COMPARED = 10
"""How many of the biggest packages are compared, at most."""

_ENOUGH = 5
"""Files that a package must have to be compared: of fewer turns, every share looks unfair."""


@dataclass(frozen=True, slots=True)
class Fairness:
    """Two views: of the small, who should not wait behind the big; and of the big, who should advance together."""

    packages: int
    biggest: str
    biggest_files: int
    ahead: int
    """Files of the biggest package that were read before the last package had its first turn…"""
    ahead_by_age: int
    """… and how many that would have been, had the jobs run in the order in which they were enqueued."""
    compared: int
    """How many of the biggest packages, over the stretch in which all of them had files waiting…"""
    fewest: int
    most: int
    """… and the turns they had in it."""
    index: float
    """Jain's index of those turns: 1 when all had the same, 1/n when one of n had everything."""


def fairness(turns: Sequence[str], line: Sequence[str]) -> Fairness | None:
    """`turns`: the package of each file, in the order in which they were read; `line`: in which they were enqueued.

    None when there are no two packages with enough files to tell.
    """
    files = Counter(turns)
    biggest = [package for package, count in files.most_common(_COMPARED) if count >= _ENOUGH]
    if len(biggest) < 2:
        return None
    shares = _shares(turns, biggest, files)
    return Fairness(
        packages=len(files),
        biggest=biggest[0],
        biggest_files=files[biggest[0]],
        ahead=_ahead(turns, biggest[0]),
        ahead_by_age=_ahead(line, biggest[0]),
        compared=len(biggest),
        fewest=min(shares),
        most=max(shares),
        index=jain(shares),
    )


def jain(shares: Sequence[int]) -> float:
    """Jain's fairness index of some shares."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def _ahead(order: Sequence[str], biggest: str) -> int:
    """Turns of this package before the last of all packages has its first."""
    last_first = max({package: place for place, package in reversed(list(enumerate(order)))}.values())
    return order[:last_first].count(biggest)


def _shares(turns: Sequence[str], packages: Sequence[str], files: Counter[str]) -> list[int]:
    """The turns that each of these had by the time the first of them had nothing left."""
    had: Counter[str] = Counter()
    for package in turns:
        had[package] += 1
        if package in packages and had[package] == files[package]:
            break
    return [had[package] for package in packages]
