"""A PostgreSQL server of one's own: any installation's binaries, in a folder, for as long as this process lives.

For tests and for the demo. Runs for root too, as an unprivileged user, and never outlives the process that started it,
not even one that was killed.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from millpond.testing import programs
from millpond.testing.programs import Account, Programs, ServerError

Mode: TypeAlias = Literal["smart", "fast", "immediate"]
"""How to stop: when all clients have left; now, in good order; now, as in a crash."""

_SIGNALS: Final[Mapping[Mode, signal.Signals]] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}

DURABLE: Final[Mapping[str, str]] = {"max_connections": "200"}
"""For a database that may be kept: the server's own defaults."""

EPHEMERAL: Final[Mapping[str, str]] = {
    "max_connections": "200",
    "shared_buffers": "32MB",
    "max_wal_size": "256MB",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "off",
}
"""For a server that is thrown away: nothing is worth a wait for the disk, and no plan changes behind a test's back."""

_DEADLINE: Final = 60.0
"""Seconds to start or to stop in."""

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder that nobody can guess is made in it
_ROOM: Final = 2 * 1024**3
"""Bytes that must be free in memory for a throw-away server to live there: a clone is then made in 10 ms, not 200."""

_SOCKET_PATH_LIMIT: Final = 103
"""Bytes: the shortest that a system allows for the path of a socket (macOS; Linux: 107)."""

# What becomes the server, under `sh`, with a pipe from the owner for input. A line says that the server has ended; an
# end without one, that the owner died: then the server ends too, and the temporary folder goes. The watcher is started
# by a shell of its own, so that the server does not find a child that it does not know.
_LEASHED: Final = """
home=$1 data=$2; shift 2
exec 3<&0 </dev/null
(
    {
        read -r ended && exit
        kill -INT $$
        tries=0
        while [ -e "$data/postmaster.pid" ] && [ $((tries += 1)) -lt 600 ]; do sleep 0.1; done
        rm -rf -- "$home"
    } <&3 >/dev/null 2>&1 &
)
exec "$@" 3<&-
"""

_HBA: Final = """\
local all all trust
host all all 127.0.0.1/32 scram-sha-256
"""
"""The socket is in a folder that nobody else can enter; the port is open to everybody on this machine."""


class Server:
    """A PostgreSQL server in a folder. As a context manager, it runs for the body."""

    def __init__(self, binaries: Path, folder: Path | None = None, settings: Mapping[str, str] = EPHEMERAL) -> None:
        """`binaries`: the folder of `postgres` and `initdb`. `folder`: kept, and started again if it holds a server
        already; without one, everything is temporary, and in memory when there is room and fsync is off."""
        self.port = free_port()
        """On 127.0.0.1, for the user `postgres` with `password`; the same after a restart."""
        self.password = secrets.token_hex(16)
        self._binaries = binaries
        self._folder = folder and folder.absolute()
        self._settings = dict(settings)
        self._site: _Site | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def embedded(cls, folder: Path | None = None, settings: Mapping[str, str] = EPHEMERAL) -> Self:
        """The PostgreSQL of the extra `embedded`."""
        return cls(programs.embedded(), folder, settings)

    @classmethod
    def system(cls, folder: Path | None = None, settings: Mapping[str, str] = EPHEMERAL) -> Self:
        """The newest PostgreSQL that the system has."""
        found = programs.system()
        if found is None:
            raise ServerError("The system has no PostgreSQL server: install one, such as Debian's package postgresql.")
        return cls(found, folder, settings)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def host(self) -> str:
        """The folder of the socket: libpq takes it for a host."""
        return str(self._started().home)

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise ServerError("The server is not running: start it.")
        return self._process.pid

    def dsn(self, dbname: str = "postgres") -> str:
        """The conninfo of a database, over the socket."""
        return make_conninfo(host=self.host, port=self.port, user="postgres", dbname=dbname)

    def tcp_dsn(self, dbname: str = "postgres") -> str:
        """The conninfo of a database, over TCP."""
        return make_conninfo(host="127.0.0.1", port=self.port, user="postgres", password=self.password, dbname=dbname)

    def start(self) -> None:
        """Set up what is new, start, and wait until clients are served. Raises ServerError."""
        if self._process is not None:
            return
        if self._site is None:
            self._site = _Site.prepare(self._binaries, self._folder, self._settings)
        try:
            self._launch(self._site)
            self._wait_until_served(self._site)
        except BaseException:
            self.close()
            raise

    def stop(self, mode: Mode = "fast") -> None:
        """Stop, and wait for the end; start may follow. Does nothing when it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(_SIGNALS[mode])
        try:
            process.wait(_DEADLINE)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.wait()
            raise ServerError(
                f"The server did not stop within {_DEADLINE:g} s. {self._started().complaint()}"
            ) from error
        finally:
            _release(process)

    def restart(self, mode: Mode = "fast") -> None:
        """Stop and start, on the same socket and port: for clients, a short outage."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop, and delete what is temporary."""
        try:
            self.stop()
        finally:
            site, self._site = self._site, None
            if site is not None:
                shutil.rmtree(site.home, ignore_errors=True)

    def _started(self) -> _Site:
        if self._site is None:
            raise ServerError("The server was not started, or is closed: start it.")
        return self._site

    def _launch(self, site: _Site) -> None:
        settings = self._settings | {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(site.home),
        }
        server = [str(site.programs.folder / "postgres"), "-D", str(site.data)]
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with site.log.open("wb") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _LEASHED, "sh", str(site.home), str(site.data), *server, *options],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # the terminal's Ctrl-C is for the owner, who stops the server when done
                **site.programs.manner(),
            )

    def _wait_until_served(self, site: _Site) -> None:
        deadline = time.monotonic() + _DEADLINE
        while True:
            try:
                with psycopg.connect(self.dsn(), autocommit=True) as connection:
                    connection.execute(sql.SQL("ALTER ROLE postgres PASSWORD {}").format(self.password))
            except psycopg.OperationalError as error:
                if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                    raise ServerError(f"The server does not start. {site.complaint()}") from error
                time.sleep(0.01)
            else:
                return


@dataclass(frozen=True, slots=True)
class _Site:
    """Where one server lives."""

    programs: Programs
    home: Path
    """Temporary: the socket, and all the rest when nothing is kept."""
    data: Path
    log: Path

    @classmethod
    def prepare(cls, binaries: Path, folder: Path | None, settings: Mapping[str, str]) -> Self:
        """Make the folders, and a cluster in them unless there is one. Raises ServerError."""
        sync = settings.get("fsync") != "off"
        programs = Programs(binaries, Account.for_server(folder / "data" if folder else None))
        reachable = programs.reachable()
        home = _make_home(in_memory=folder is None and not sync, executable=not reachable)
        try:
            kept = folder or home
            programs = programs if reachable else programs.copied(home)
            site = cls(programs, home, kept / "data", kept / "server.log")
            if programs.account is not None:
                programs.account.own(home)
            if not (site.data / "PG_VERSION").exists():
                site._initialise(sync=sync)
        except BaseException:
            shutil.rmtree(home, ignore_errors=True)
            raise
        return site

    def complaint(self) -> str:
        """The last words of the server's log."""
        lines = self.log.read_text("utf-8", errors="replace").splitlines() if self.log.exists() else []
        return "Its log ends with: " + " / ".join(lines[-5:]) if lines else "It logged nothing."

    def _initialise(self, *, sync: bool) -> None:
        self.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        if self.programs.account is not None:
            self.programs.account.own(self.data)
        # Bytes decide the order and Unicode the letters, on every system; before 17 only the system knew C.UTF-8.
        built_in = ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        self.programs.run(
            "initdb",
            f"--pgdata={self.data}",
            "--username=postgres",
            "--encoding=UTF8",
            "--auth=trust",
            *(built_in if self.programs.version() >= 17 else ["--locale=C.UTF-8"]),
            *([] if sync else ["--no-sync"]),
        )
        (self.data / "pg_hba.conf").write_text(_HBA)


def _release(process: subprocess.Popen[bytes]) -> None:
    """Tell the watcher that the server has ended by our will."""
    assert process.stdin is not None  # opened by _launch
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(b"ended\n")
        process.stdin.flush()
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()


def _make_home(*, in_memory: bool, executable: bool) -> Path:
    """A temporary folder that others cannot enter, with a path short enough for a socket in it."""
    memory = in_memory and _fits_in_memory(executable=executable)
    home = Path(tempfile.mkdtemp(prefix="millpond-", dir=_MEMORY if memory else None))
    if len(os.fsencode(home / ".s.PGSQL.00000")) <= _SOCKET_PATH_LIMIT:
        return home
    home.rmdir()
    return Path(tempfile.mkdtemp(prefix="millpond-", dir="/tmp"))


def _fits_in_memory(*, executable: bool) -> bool:
    if not _MEMORY.is_dir() or shutil.disk_usage(_MEMORY).free < _ROOM:
        return False
    return not (executable and os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC)  # as Docker mounts it


def free_port() -> int:
    """A port that is free now, below the range from which systems take ports for outgoing connections: those would
    take it while the server restarts."""
    while True:
        port = 15_000 + secrets.randbelow(17_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
