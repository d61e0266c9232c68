"""Find the files, and for each that is new or has changed: record it, and enqueue the job that reads it."""

from __future__ import annotations

import os
import re
import sysconfig
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from psycopg import Connection

from millpond import Client

from .jobs import IndexFile

STDLIB = Path(sysconfig.get_path("stdlib")).resolve()

_TABLES = Path(__file__).with_name("tables.sql")

_NOT_OURS = {"site-packages", "dist-packages", "node_modules", "__pycache__"}

_NO_PYTHON_ON_PURPOSE = re.compile(r"bad_coding|badsyntax|lib2to3/(tests/)?data/")
"""In the standard library alone: test data that must not parse. Python's own installation leaves the same files out
when it compiles the library."""

_KNOWN = "SELECT path, modified_at FROM stdlib_index.files WHERE package = %s"

_RECORD = """
    INSERT INTO stdlib_index.files (path, package, modified_at, job_id)
    VALUES (%(path)s, %(package)s, %(modified_at)s, %(job_id)s)
    ON CONFLICT (path) DO UPDATE
    SET modified_at = excluded.modified_at, job_id = excluded.job_id, times_read = 0, read_at = NULL
"""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to read."""

    path: str
    package: str
    """The top-level package or module that it belongs to: the tenant of its job."""
    modified_at: datetime


def enqueue(conn: Connection[Any], root: Path = STDLIB, limit: int | None = None) -> int:
    """Enqueue what is new or has changed below `root`, and return how many files that is.

    `limit`: at most so many files, taken evenly from all. `conn` is in autocommit mode: each package has a transaction
    of its own. The biggest package goes first, so that all others stand in line behind it.
    """
    conn.execute(_TABLES.read_text("utf-8"))
    return sum(enqueue_package(conn, files) for files in by_package(find_files(root, limit)))


def enqueue_package(conn: Connection[Any], files: list[SourceFile]) -> int:
    """Record the files of one package and enqueue their jobs, in one transaction; return how many were not known."""
    client = Client()
    with conn.transaction():
        known = dict(conn.execute(_KNOWN, [files[0].package]).fetchall())
        fresh = [file for file in files if known.get(file.path) != file.modified_at]
        ids = client.enqueue_many(conn, [client.job(IndexFile(file.path), tenant=file.package) for file in fresh])
        conn.cursor().executemany(
            _RECORD,
            [
                {"path": file.path, "package": file.package, "modified_at": file.modified_at, "job_id": job_id}
                for file, job_id in zip(fresh, ids, strict=True)
            ],
        )
    return len(fresh)


def find_files(root: Path = STDLIB, limit: int | None = None) -> list[SourceFile]:
    """Every .py file below `root`, by path, without hidden folders and installed packages."""
    root = root.resolve()
    paths = sorted(_walk(root))
    if root == STDLIB:
        paths = [path for path in paths if not _NO_PYTHON_ON_PURPOSE.search(path.relative_to(root).as_posix())]
    if limit is not None and limit < len(paths):
        paths = [paths[place * len(paths) // limit] for place in range(limit)]
    return [
        SourceFile(
            path=str(path),
            package=path.relative_to(root).parts[0].removesuffix(".py"),
            modified_at=datetime.fromtimestamp(path.stat().st_mtime, UTC),
        )
        for path in paths
    ]


def by_package(files: list[SourceFile]) -> list[list[SourceFile]]:
    """The files of each package together, the biggest package first."""
    packages: defaultdict[str, list[SourceFile]] = defaultdict(list)
    for file in files:
        packages[file.package].append(file)
    return sorted(packages.values(), key=len, reverse=True)


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _NOT_OURS]
        paths = (Path(folder, name) for name in names if name.endswith(".py") and not name.startswith("."))
        yield from (path for path in paths if path.is_file())  # no link that leads nowhere
