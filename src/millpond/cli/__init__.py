"""The command line: one module per command. It needs the extra `cli`, and says so where it is missing."""

from __future__ import annotations

import sys

_EXTRA = frozenset({"typer", "rich"})


def main() -> None:
    """What the command `millpond` runs. Leaves with 0, 1 (it did not work, one sentence says why) or 2 (usage)."""
    try:
        from millpond.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        sys.stderr.write('The command line needs its extra: pip install "millpond[cli]".\n')
        raise SystemExit(2) from None
    run()
