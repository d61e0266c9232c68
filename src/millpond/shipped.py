"""Where the folders that travel beside the code are: in the installed wheel, or in the checkout it was made from."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent.parent


def shipped(folder: str) -> Path:
    """The folder `migrations` or `examples/…`, wherever this copy of millpond keeps it."""
    installed = _PACKAGE / folder
    return installed if installed.is_dir() else _CHECKOUT / folder
