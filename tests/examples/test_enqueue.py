"""Which files are found, and that a file and its job are one."""

from __future__ import annotations

import ast
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import Connection
from stdlib_index.enqueue import STDLIB, by_package, enqueue, find_files

from millpond.testing.database import Database

JOBS = """
    SELECT f.path, f.package, j.tenant_id, j.args, j.state
    FROM stdlib_index.files AS f JOIN millpond.jobs AS j ON j.id = f.job_id
"""


@pytest.fixture
def conn(database: Database) -> Iterator[Connection[Any]]:
    with database.connect(autocommit=True) as connection:
        yield connection


def count(conn: Connection[Any], table: str) -> int:
    return int(conn.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])


def test_packages_are_what_lies_at_the_top(tree: Path) -> None:
    found = {file.path.removeprefix(f"{tree}/"): file.package for file in find_files(tree)}
    assert found == {
        "alpha/__init__.py": "alpha",
        "alpha/deep/down.py": "alpha",
        "beta/one.py": "beta",
        "single.py": "single",
    }
    assert [files[0].package for files in by_package(find_files(tree))] == ["alpha", "beta", "single"]


@pytest.mark.parametrize(("limit", "files"), [(1, 1), (3, 3), (4, 4), (100, 4)])
def test_a_limit_takes_evenly_from_all(tree: Path, limit: int, files: int) -> None:
    found = find_files(tree, limit)
    assert len(found) == files
    assert set(found) <= set(find_files(tree))


def test_of_the_standard_library_what_must_not_parse_is_left_out() -> None:
    """Looked at where such files are, which takes a moment instead of the many seconds of the whole library."""
    found = [Path(file.path).relative_to(STDLIB) for file in find_files()]
    assert Path("ast.py") in found
    for path in found:
        if "bad" in path.name or "data" in str(path.parent):
            with warnings.catch_warnings(action="ignore"):
                ast.parse((STDLIB / path).read_bytes(), str(path))


def test_only_the_standard_library_has_files_that_must_not_parse(tmp_path: Path) -> None:
    (tmp_path / "badsyntax_of_ours.py").write_text("def f(:")
    assert len(find_files(tmp_path)) == 1


def test_every_file_has_its_job(conn: Connection[Any], tree: Path) -> None:
    assert enqueue(conn, tree) == 4
    rows = conn.execute(JOBS).fetchall()
    assert len(rows) == 4
    for path, package, tenant, args, state in rows:
        assert (tenant, args, state) == (package, {"path": path}, "available")


def test_the_second_time_only_what_has_changed_is_enqueued(conn: Connection[Any], tree: Path) -> None:
    enqueue(conn, tree)
    assert enqueue(conn, tree) == 0
    conn.execute("UPDATE stdlib_index.files SET times_read = 1, read_at = now()")
    os.utime(tree / "single.py", (1, 1))
    (tree / "new.py").touch()
    assert enqueue(conn, tree) == 2
    assert count(conn, "millpond.jobs") == 6
    waiting = conn.execute(f"{JOBS} WHERE times_read = 0 ORDER BY path").fetchall()
    assert [Path(path).name for path, *_ in waiting] == ["new.py", "single.py"]


def test_without_its_record_there_is_no_job(conn: Connection[Any], tree: Path) -> None:
    enqueue(conn, tree, limit=1)
    conn.execute("ALTER TABLE stdlib_index.files ADD CONSTRAINT no_beta CHECK (package <> 'beta')")
    with pytest.raises(psycopg.errors.CheckViolation):
        enqueue(conn, tree)
    assert count(conn, "stdlib_index.files") == count(conn, "millpond.jobs") == 2  # alpha, which went first, and whole
    assert count(conn, "stdlib_index.files WHERE package = 'beta'") == 0
