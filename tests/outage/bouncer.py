"""A real PgBouncer in transaction mode, set up as its manual says, with nothing in it that is for millpond's sake."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from millpond.testing.programs import Account, Programs
from millpond.testing.server import free_port

PROGRAM: Final = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin")

POOL: Final = 3
"""Sessions on the server: fewer than the connections of one worker, so that they have to share."""

_SETTINGS: Final = """
[databases]
* = host={host} port={port}
[pgbouncer]
pool_mode = transaction
default_pool_size = {pool}
max_client_conn = 200
listen_addr = 127.0.0.1
listen_port = {listen_port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
logfile = {folder}/log
pidfile = {folder}/pid
"""

_DEADLINE: Final = 20.0


@contextlib.contextmanager
def bouncing(dsn: str) -> Iterator[str]:
    """The way to this database through a PgBouncer that runs for the body."""
    assert PROGRAM is not None
    upstream = conninfo_to_dict(dsn)
    programs = Programs(Path(PROGRAM).parent, Account.for_server(None))  # it refuses to run as root
    with tempfile.TemporaryDirectory(prefix="millpond-bouncer-") as name:
        folder, listen_port = Path(name), free_port()
        settings = _SETTINGS.format(
            host=upstream["host"], port=upstream["port"], pool=POOL, listen_port=listen_port, folder=folder
        )
        (folder / "settings").write_text(settings)
        (folder / "users").write_text(f'"{upstream["user"]}" ""\n')
        if programs.account is not None:
            programs.account.own(folder)
        made = make_conninfo(dsn, host="127.0.0.1", port=listen_port, sslmode="disable", gssencmode="disable")
        with subprocess.Popen(
            [PROGRAM, "--quiet", str(folder / "settings")], stderr=subprocess.DEVNULL, **programs.manner()
        ) as process:
            try:
                _wait_until_served(made, process, folder / "log")
                yield made
            finally:
                process.kill()


def _wait_until_served(dsn: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _DEADLINE
    while True:
        try:
            with psycopg.connect(dsn, prepare_threshold=None) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"PgBouncer does not start: {log.read_text()[-1_000:]}") from None
            time.sleep(0.01)
        else:
            return
