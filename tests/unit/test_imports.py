"""What `import millpond` brings along: every program that enqueues pays for it at each start."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("sqlalchemy", "alembic", "opentelemetry.sdk", "django", "asyncpg", "typer", "pydantic")


def test_the_door_opens_without_the_libraries_that_few_need() -> None:
    code = f"import sys, millpond; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
