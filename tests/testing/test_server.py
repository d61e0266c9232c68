"""Servers of our own: started, restarted, kept; gone when their owner is, however it went."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from millpond.testing import programs
from millpond.testing.programs import ServerError
from millpond.testing.server import DURABLE, Mode, Server
from tests.migrations.support import eventually


def one(dsn: str, query: str) -> object:
    """The one value that this query gives."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]


def test_it_serves_over_socket_and_tcp(millpond_server: Server) -> None:
    for dsn in (millpond_server.dsn(), millpond_server.tcp_dsn()):
        assert (
            one(dsn, "SELECT pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database()")
            == "UTF8"
        )
        assert one(dsn, "SELECT lower('ÄÖÜ')") == "äöü"
        assert one(dsn, "SELECT min(x) FROM unnest(ARRAY['a', 'B', 'ä']) x") == "B"


def test_strangers_are_kept_out(millpond_server: Server) -> None:
    assert stat.S_IMODE(Path(millpond_server.host).stat().st_mode) == 0o700
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(make_conninfo(millpond_server.tcp_dsn(), password="guessed"))
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(make_conninfo(host="127.0.0.1", port=millpond_server.port, user="postgres"))


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_is_a_short_outage(millpond_server: Server, mode: Mode) -> None:
    with psycopg.connect(millpond_server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS x")
        connection.execute("CHECKPOINT")
        before = millpond_server.dsn(), millpond_server.tcp_dsn()
        millpond_server.restart(mode)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert (millpond_server.dsn(), millpond_server.tcp_dsn()) == before
    assert all(one(dsn, "SELECT x FROM kept") == 1 for dsn in before)


def test_stopped_it_refuses_and_started_it_serves(millpond_server: Server) -> None:
    millpond_server.stop()
    millpond_server.stop()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(millpond_server.dsn())
    millpond_server.start()
    millpond_server.start()
    assert one(millpond_server.dsn(), "SELECT 1") == 1


def test_it_starts_again_after_the_server_was_killed(millpond_server: Server) -> None:
    os.kill(millpond_server.pid, signal.SIGKILL)
    millpond_server.restart()
    assert one(millpond_server.dsn(), "SELECT 1") == 1


def test_closed_it_leaves_nothing(millpond_server: Server) -> None:
    home, pid = Path(millpond_server.host), millpond_server.pid
    millpond_server.close()
    assert not home.exists()
    assert not alive(pid)
    with pytest.raises(ServerError, match="start it"):
        millpond_server.dsn()


def test_a_kept_folder_is_started_again(tmp_path: Path) -> None:
    folder = open_to_all(tmp_path) / "kept"
    with Server.embedded(folder, DURABLE) as server, psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS x")
        assert one(server.dsn(), "SHOW fsync") == "on"
    with Server.embedded(folder, DURABLE) as server:
        assert one(server.dsn(), "SELECT x FROM kept") == 42
        with pytest.raises(ServerError, match="already exists"):
            Server.embedded(folder, DURABLE).start()


def test_what_is_in_its_way_is_said(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="There is no program"):
        Server(open_to_all(tmp_path)).start()
    if os.geteuid() == 0:
        (tmp_path / "closed").mkdir(mode=0o700)
        with pytest.raises(ServerError, match="every folder must be open to it"):
            Server.embedded(tmp_path / "closed" / "kept").start()
    with pytest.raises(ServerError, match=r"does not start.*log ends with.*no_such_setting"):
        Server.embedded(settings={"no_such_setting": "on"}).start()


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "find_spec", lambda name: None)
    with pytest.raises(ServerError, match=r'pip install "millpond\[embedded\]"'):
        Server.embedded()


@pytest.mark.parametrize("ending", ["kill -9", "an exception", "exit without closing"])
def test_it_does_not_outlive_its_owner(ending: str) -> None:
    how = {
        "kill -9": "os.kill(os.getpid(), 9)",
        "an exception": "raise SystemExit(3)",
        "exit without closing": "os._exit(0)",
    }[ending]
    program = f"""
        import os
        from millpond.testing.server import Server
        server = Server.embedded()
        server.start()
        print(server.pid, server.host, flush=True)
        {how}
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False)
    pid, home = done.stdout.split()
    eventually(lambda: not alive(int(pid)))
    eventually(lambda: not Path(home).exists())


def test_programs_that_the_servers_user_cannot_enter_are_copied(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root starts a server as somebody else")
    package = programs.embedded().parents[1]
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for part in (package, package.with_name(f"{package.name}.libs")):
        (closed / part.name).symlink_to(part)
    with Server(closed / package.name / "pginstall" / "bin") as server:
        assert one(server.dsn(), "SELECT 1") == 1


def test_a_socket_path_is_never_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = open_to_all(tmp_path) / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    monkeypatch.setattr("millpond.testing.server._MEMORY", tmp_path / "missing")
    with Server.embedded() as server:
        assert len(str(conninfo_to_dict(server.dsn())["host"])) < 100


def open_to_all(folder: Path) -> Path:
    """This folder of pytest's, which others may not enter, as one that the server's user may."""
    for each in (folder, *folder.parents[:2]):
        each.chmod(0o755)
    return folder


def alive(pid: int) -> bool:
    """Whether this process runs; one that nobody has reaped does not."""
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]
    except (FileNotFoundError, ProcessLookupError):
        return False
