"""A proxy before a PostgreSQL server that does to connections what networks, firewalls and failovers do to them.

For tests of what an application, and millpond's worker in it, makes of that. It has an event loop and a thread of its
own, and its methods may be called from anywhere. What it does can be confined to the connections of one
`application_name`; each loop of a worker has its own: `millpond claimer`, `settler`, `upkeep`, `lease`, `listener`,
`registration`.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from millpond.store.dsn import conninfo
from millpond.testing.server import free_port

T = TypeVar("T")

Way: TypeAlias = Literal["server", "client"]
"""Where bytes go."""

BOTH: Final[tuple[Way, ...]] = ("server", "client")

_CHUNK: Final = 65_536
_APPLICATION_NAME: Final = re.compile(rb"\0application_name\0([^\0]*)\0")
_READY: Final = b"Z\0\0\0\5"
"""ReadyForQuery, but for its last byte: the statement is done, and committed unless it is in a transaction."""
_DEADLINE: Final = 10.0
"""Seconds for the proxy's own thread to do what it is asked."""


@dataclass
class Loss:
    """The loss of one statement, or of its answer. It happens once."""

    pattern: bytes
    part: Literal["request", "answer"]
    name: str | None
    happened: threading.Event = field(default_factory=threading.Event)


@dataclass
class _Weather:
    """What befalls bytes on their way."""

    blocked: frozenset[Way] = frozenset()
    delay: float = 0.0
    chunk: int = _CHUNK


@dataclass(eq=False)
class _Pair:
    """One client's connection, and the one to the server that goes with it."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    name: str = ""
    loss: Loss | None = None
    half_open: bool = False

    def abort(self, *, reset: bool = False) -> None:
        """End both now; the client sees an end, or a reset."""
        for writer in (self.client, self.server):
            if reset and (wire := writer.get_extra_info("socket")) is not None and wire.family != socket.AF_UNIX:
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            else:
                writer.close()


class Proxy:
    """Stands between clients and a server for the body of its `with`. Without orders, it passes everything on."""

    def __init__(self, dsn: str) -> None:
        """`dsn`: the server, in any form; without TLS, since it looks into what it passes on."""
        self._upstream = conninfo_to_dict(conninfo(dsn))
        self.port = free_port()
        """On 127.0.0.1; the same for as long as it lives, refusing or not."""
        self.dsn = make_conninfo(
            conninfo(dsn), host="127.0.0.1", port=self.port, sslmode="disable", gssencmode="disable"
        )
        """The way through it."""
        self.accepted = 0
        """How many connections it has taken, up to now."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="millpond-proxy")
        self._pairs: set[_Pair] = set()
        self._losses: list[Loss] = []
        self._weather: dict[str | None, _Weather] = {}
        self._changed = asyncio.Event()
        self._listening: asyncio.Server | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._call(self._close)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def connections(self, name: str | None = None) -> int:
        """How many are open, of those with this `application_name`; None: of all."""
        return self._do(lambda: sum(1 for _ in self._of(name)))

    def cut(self, name: str | None = None, *, reset: bool = False) -> None:
        """End connections: in order, as a server does that stops; or by reset, as one that has forgotten them."""

        def cut() -> None:
            for pair in list(self._of(name)):
                pair.abort(reset=reset)

        self._do(cut)

    def half_open(self, name: str | None = None) -> None:
        """End the server's side of connections; the client is not told, and nothing answers it any more."""

        def cut() -> None:
            for pair in self._of(name):
                pair.half_open = True
                pair.server.close()

        self._do(cut)

    def block(self, *ways: Way, name: str | None = None) -> None:
        """Pass nothing on in these ways, both by default: a black hole, for new connections too. What is held back
        arrives after `heal`, as it does with TCP."""
        self._do(lambda: self._set_weather(name, _Weather(blocked=frozenset(ways or BOTH))))

    def slow(self, *, delay: float, chunk: int = _CHUNK, name: str | None = None) -> None:
        """Pass on so many bytes at a time, each after so many seconds."""
        self._do(lambda: self._set_weather(name, _Weather(delay=delay, chunk=chunk)))

    def refuse(self) -> None:
        """End all connections, and refuse new ones: as if the server were not running."""
        self._call(self._refuse)

    def heal(self) -> None:
        """Pass everything on again, and take connections; what is half open stays so."""
        self._call(self._heal)

    def lose(self, statement: bytes, part: Literal["request", "answer"] = "answer", name: str | None = None) -> Loss:
        """Of the next statement with these words in it, lose the request, so that it is not done, or the answer to what
        is done; with it goes the connection."""
        loss = Loss(statement, part, name)
        self._do(lambda: self._losses.append(loss))
        return loss

    # ── in its own thread ────────────────────────────────────────────────────────────────────────────────────────────

    def _call(self, order: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return asyncio.run_coroutine_threadsafe(order(), self._loop).result(_DEADLINE)

    def _do(self, order: Callable[[], T]) -> T:
        async def call() -> T:
            return order()

        return self._call(call)

    async def _listen(self) -> None:
        if self._listening is None:
            self._listening = await asyncio.start_server(self._accept, "127.0.0.1", self.port, limit=_CHUNK)

    async def _refuse(self) -> None:
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.close()
        for pair in list(self._pairs):
            pair.abort()

    async def _heal(self) -> None:
        self._weather.clear()
        self._announce_change()
        await self._listen()

    async def _close(self) -> None:
        await self._refuse()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _of(self, name: str | None) -> Iterator[_Pair]:
        return (pair for pair in self._pairs if name in (None, pair.name))

    def _set_weather(self, name: str | None, weather: _Weather) -> None:
        self._weather[name] = weather
        self._announce_change()

    def _announce_change(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _accept(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            from_server, to_server = await self._connect()
        except OSError:
            to_client.close()
            return
        pair = _Pair(to_client, to_server)
        self._pairs.add(pair)
        pumps = (
            asyncio.ensure_future(self._pump(pair, from_client, to_server, "server")),
            asyncio.ensure_future(self._pump(pair, from_server, to_client, "client")),
        )
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            self._pairs.discard(pair)
            pair.abort()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = str(self._upstream.get("host") or "127.0.0.1"), int(self._upstream.get("port") or 5432)
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}", limit=_CHUNK)
        return await asyncio.open_connection(host, port, limit=_CHUNK)

    async def _pump(self, pair: _Pair, source: asyncio.StreamReader, sink: asyncio.StreamWriter, to: Way) -> None:
        """Pass bytes on, one way, until there are no more."""
        with contextlib.suppress(ConnectionError):
            while data := await source.read(_CHUNK):
                if to == "server" and not pair.name and (found := _APPLICATION_NAME.search(data)):
                    pair.name = found[1].decode()
                if self._loses(pair, data, to):
                    break
                await self._pass_on(pair, data, sink, to)
            await self._unblocked(pair, to)
            if to == "client" and pair.half_open:
                await asyncio.Event().wait()  # the end that the client does not hear of

    async def _pass_on(self, pair: _Pair, data: bytes, sink: asyncio.StreamWriter, to: Way) -> None:
        weather = await self._unblocked(pair, to)
        for start in range(0, len(data), weather.chunk):
            if weather.delay:
                await asyncio.sleep(weather.delay)
            if pair.half_open:
                return
            sink.write(data[start : start + weather.chunk])
            await sink.drain()

    async def _unblocked(self, pair: _Pair, to: Way) -> _Weather:
        """Wait until this way is open; how it is then."""
        while to in (weather := self._weather.get(pair.name) or self._weather.get(None) or _Weather()).blocked:
            await self._changed.wait()
        return weather

    def _loses(self, pair: _Pair, data: bytes, to: Way) -> bool:
        """Whether the connection is to be lost now, with these bytes."""
        if to == "server" and pair.loss is None:
            meant = (loss for loss in self._losses if loss.pattern in data and loss.name in (None, pair.name))
            pair.loss = next(meant, None)
        loss = pair.loss
        if loss is None or loss.happened.is_set():
            return False
        over = loss.part == "request" if to == "server" else data[-6:-1] == _READY
        if over:
            self._losses.remove(loss)
            loss.happened.set()
        return over
