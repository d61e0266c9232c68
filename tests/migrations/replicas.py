"""Run as a script: `replicas.py COUNT ARGUMENT…` starts `alembic ARGUMENT…` in so many processes at the same moment.

Prints the exit status of each. They are forked after the imports, so that they meet in the database.
"""

from __future__ import annotations

import os
import sys

from alembic.config import main


def replica(gate: int, arguments: list[str]) -> int:
    """The exit status of one `alembic`, started when the gate opens."""
    os.read(gate, 1)
    try:
        main(arguments, prog="alembic")
    except SystemExit as left:
        return int(left.code or 0)
    return 0


if __name__ == "__main__":
    count, arguments = int(sys.argv[1]), sys.argv[2:]
    gate, opener = os.pipe()
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            os.close(opener)
            os._exit(replica(gate, arguments))
        children.append(child)
    os.close(opener)
    for child in children:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
