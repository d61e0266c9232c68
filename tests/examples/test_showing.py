"""What is shown, of which numbers: no database, no terminal."""

from __future__ import annotations

import io

from rich.console import Console
from stdlib_index.fairness import Fairness
from stdlib_index.report import Failure, Package, Report, show
from stdlib_index.watch import Progress, line, picture

PROGRESS = [Progress("big", 100, 50, 1), *(Progress(f"small {n}", 2, 2 - n % 2, 0) for n in range(12))]


def console(**options: object) -> Console:
    return Console(file=io.StringIO(), width=80, highlight=False, **options)  # type: ignore[arg-type]


def shown(on: Console) -> str:
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue()


def test_a_line_has_all_the_numbers() -> None:
    assert line(PROGRESS, 1.25) == "  1.2 s  68 of 124 files read, 1 failed; 6 of 13 packages done"


def test_a_picture_has_the_biggest_and_the_others_together() -> None:
    on = console()
    on.print(picture(PROGRESS, 1.25, bars=3))
    rows = [" ".join(row.replace("━", "").replace("╺", "").replace("╸", "").split()) for row in shown(on).splitlines()]
    assert rows == [
        "",
        "big 50 of 100 1 failed",
        "small 0 2 of 2",
        "small 1 1 of 2",
        "10 others 15 of 20",
        "",
        "all 68 of 124 1 failed",
        "13 packages, 13 begun, 6 done · 1 s",
    ]


def test_a_picture_keeps_its_size() -> None:
    heights = set()
    for read in (0, 50, 99):
        on = console()
        on.print(picture([Progress("big", 100, read, 0), *PROGRESS[1:]], 0.0))
        heights.add(shown(on).count("\n"))
        assert max(map(len, shown(on).splitlines())) <= 80
    assert len(heights) == 1


def test_names_are_text_and_not_markup() -> None:
    odd = Package("[red]odd[/]", 1, 2, 3, 4, 0.5)
    total = Package(None, 1, 2, 3, 4, 0.5)
    told = Fairness(2, "[red]odd[/]", 9, 1, 9, 2, 4, 5, 0.99)
    on = console()
    show(on, Report([odd, total], told, [Failure("/[b]/x.py", 2, "SyntaxError", "[i]")]))
    on.print(picture([Progress("[red]odd[/]", 1, 0, 0)], 0.0))
    said = shown(on)
    assert said.count("[red]odd[/]") == 3
    assert "discarded /[b]/x.py\n  at attempt 2: SyntaxError: [i]\n" in said


def test_of_many_failures_the_rest_is_counted() -> None:
    on = console()
    show(on, Report([], None, [Failure(f"/{n}.py", 2, "SyntaxError", "no") for n in range(12)]))
    assert shown(on).count("SyntaxError") == 8
    assert "and 4 more discarded" in shown(on)
