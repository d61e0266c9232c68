"""Looking up names of hosts in a thread that nobody has to wait for.

The event loop does it in threads that the loop, and then the interpreter, wait for when they end. Without a network the
resolver may take a minute, and a worker that was told to stop would take as long.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Sequence

from psycopg.conninfo import conninfo_to_dict


class Lookup:
    """Finds out whether the names in one conninfo can be looked up at present. At most one thread is at it."""

    def __init__(self, conninfo: str) -> None:
        self._names = _names(conninfo)
        self._answered: asyncio.Future[None] | None = None

    async def answered(self) -> None:
        """Wait until the resolver has answered, with an address or with none: connecting finds out which, at once."""
        if not self._names:
            return
        if self._answered is None or self._answered.done():
            self._answered = asyncio.get_running_loop().create_future()
            threading.Thread(
                target=_look_up, args=(self._names, self._answered), name="millpond-lookup", daemon=True
            ).start()
        await asyncio.shield(self._answered)


def _names(conninfo: str) -> Sequence[str]:
    """The hosts that are names: neither addresses, nor folders of sockets, nor given with their addresses."""
    params = conninfo_to_dict(conninfo)
    hosts = [] if params.get("hostaddr") else str(params.get("host") or "").split(",")
    return [host for host in hosts if host and not host.startswith(("/", "@")) and not _is_address(host)]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _look_up(names: Sequence[str], answered: asyncio.Future[None]) -> None:
    for name in names:
        with contextlib.suppress(OSError, UnicodeError):
            socket.getaddrinfo(name, None)
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        answered.get_loop().call_soon_threadsafe(_tell, answered)


def _tell(answered: asyncio.Future[None]) -> None:
    if not answered.done():
        answered.set_result(None)
