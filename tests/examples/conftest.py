"""Folders to index, and folders to keep a database in."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder that a server may use whoever runs it: pytest's own are closed to all but us."""
    made = Path(tempfile.mkdtemp(prefix="millpond-test-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two packages and a module, all of which parse; and what nobody wants to index."""
    root = tmp_path / "tree"
    texts = {
        "alpha/__init__.py": '"""Alpha."""\n',
        "alpha/deep/down.py": 'class A:\n    """A class."""\n\n    async def f(self):\n        def g(): pass\n',
        "beta/one.py": "x = 1\n",
        "single.py": 'def f():\n    "f"\n',
        "alpha/notes.txt": "no Python",
        ".venv/lib/hidden.py": "this is not Python either",
        "alpha/__pycache__/cached.py": "nor this",
        "site-packages/other/theirs.py": "nor this",
    }
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "dangling.py").symlink_to(root / "nowhere.py")
    return root
