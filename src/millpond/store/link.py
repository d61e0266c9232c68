"""One connection of the worker's own, which comes back by itself. Each loop has one, and none waits for another's.

Every call has a deadline that needs no help from the driver or the server. A driver that is cancelled asks the server
to cancel the statement, and waits for the answer: for seconds, when there is none to be had. So a call is never
cancelled. It runs in a task of its own, and when it has taken too long, or is not wanted any more, its wire is cut: the
socket is shut down, which wakes whoever waits for it with an error, and the connection is closed once nobody does.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from millpond.errors import AnswerLost, DatabaseUnreachable
from millpond.store import sessions
from millpond.store.database import unreachable
from millpond.store.dsn import conninfo as plain_conninfo
from millpond.store.lookup import Lookup
from millpond.store.sqlstates import Reaction, reaction, said
from millpond.store.statement import Statement

T = TypeVar("T")

Connection: TypeAlias = psycopg.AsyncConnection[Any]

_PATIENCE: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""For every connection of ours, unless the DSN says otherwise. Five seconds to connect, per address: work goes on
within five seconds after the network is back. A peer that vanished is noticed within half a minute."""

_USABLE = (TransactionStatus.IDLE, TransactionStatus.INTRANS)

_LAST_WORDS = 1.0
"""Seconds that a call whose wire is cut has to notice: it needs one turn of the event loop."""


def conninfo(dsn: str, *, role: str) -> str:
    """The DSN with our patience put in where it has none of its own, and a name for `pg_stat_activity`.

    The encoding is ours always: in another one, what a stranger puts into a notification may not be readable.
    """
    ours = _PATIENCE | {"application_name": f"millpond {role}"}
    return make_conninfo("", **(ours | conninfo_to_dict(plain_conninfo(dsn)) | {"client_encoding": "UTF8"}))


class Link:
    """A connection in autocommit mode that is opened when first needed, and anew after it broke.

    Not for concurrent use: each loop has its own, so that none can wait for another's statement.
    """

    def __init__(self, dsn: str, *, role: str, timeout: float) -> None:
        """`timeout`: seconds that one call may take, with connecting and with its answer."""
        self._conninfo = conninfo(dsn, role=role)
        self._lookup = Lookup(self._conninfo)
        self._role = role
        self._timeout = timeout
        self._connection: Connection | None = None
        self._pooled = False
        self._in_transaction = False
        self._clock: asyncio.Timeout | None = None

    async def run(self, statement: Statement[T]) -> T:
        """Run one statement in a transaction of its own. Raises as `talk` does."""
        return await self.talk(lambda connection: execute(connection, statement))

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Link]:
        """Run the statements of the body in one transaction; what fails in it ends the session, and so undoes it.

        Raises as `talk` does.
        """
        await self.talk(lambda connection: connection.execute("BEGIN"))
        self._in_transaction = True
        try:
            yield self
            await self.talk(lambda connection: connection.execute("COMMIT"))
        except BaseException:
            self._close()
            raise
        finally:
            self._in_transaction = False

    async def talk(self, body: Callable[[Connection], Coroutine[Any, Any, T]]) -> T:
        """Let the body talk to the database.

        Raises DatabaseUnreachable when there is no connection. Raises AnswerLost, a kind of it, when the connection
        broke, or no answer came in time: what the body did is then unknown. Other errors of the database pass as they
        are; then it did nothing. Afterwards, and after a cancellation, the connection is kept only if it is of use.
        """
        assert self._clock is None, "a link is used by one task at a time"
        kind: type[DatabaseUnreachable] = DatabaseUnreachable
        try:
            async with asyncio.timeout(self._timeout) as self._clock:
                connection = await self._open()
                kind = AnswerLost
                return await self._finish(connection, body(connection))
        except TimeoutError as error:
            raise self._silent(kind, f"no answer within {self._timeout:g} s") from error
        except psycopg.Error as error:
            if reaction(error) is Reaction.RECONNECT or self._connection is None or self._connection.closed:
                raise self._silent(kind, said(error)) from error
            raise
        finally:
            self._clock = None
            self._close_if_stuck()

    async def through_pooler(self) -> bool:
        """Whether a pooler stands before the server, and gives each transaction another session. Raises as `talk`."""
        await self.talk(_nothing)
        return self._pooled

    async def listen(self, channel: str) -> None:
        """Subscribe this session to a channel. Raises as `talk` does."""
        statement = sql.SQL("LISTEN {}").format(sql.Identifier(channel))
        await self.talk(lambda connection: connection.execute(statement))

    async def notified(self, timeout: float) -> bool:
        """Wait for notifications, at most so many seconds; whether there was one. Raises as `talk` does."""
        if self._connection is None:
            raise self._silent(DatabaseUnreachable, "the session is gone")
        try:
            return any([True async for _ in self._connection.notifies(timeout=timeout, stop_after=1)])
        except psycopg.Error as error:
            raise self._silent(DatabaseUnreachable, said(error)) from error

    def hurry(self, timeout: float) -> None:
        """From now on a call, and the one that is under way, may take no longer than so many seconds."""
        self._timeout = min(self._timeout, timeout)
        if self._clock is not None and not self._clock.expired():
            soon = asyncio.get_running_loop().time() + self._timeout
            self._clock.reschedule(min(soon, self._clock.when() or soon))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; the next call opens another."""
        self._close()

    async def _open(self) -> Connection:
        """The open connection, or a new one. Raises DatabaseUnreachable."""
        if self._connection is not None and not self._connection.closed:
            return self._connection
        if self._in_transaction:
            raise DatabaseUnreachable(f"The {self._role} has lost its connection within a transaction.")
        await self._lookup.answered()
        try:
            connection = await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True)
            self._connection = connection
            session = sessions.open_session(timeout=self._timeout, pid=connection.pgconn.backend_pid)
            self._pooled = not await self._finish(connection, execute(connection, session, prepare=False))
        except (psycopg.Error, OSError) as error:
            self._close()
            raise unreachable(self._conninfo, error) from error
        except asyncio.CancelledError as error:
            # The driver leaves a connection that is half made to be closed with the last reference to it: this one.
            traceback.clear_frames(error.__traceback__)
            raise
        if self._pooled:
            connection.prepare_threshold = None  # the next transaction's session would not know what this one prepared
        return connection

    async def _finish(self, connection: Connection, call: Coroutine[Any, Any, T]) -> T:
        """Await the driver's call; when that is cancelled, cut the wire."""
        task = asyncio.ensure_future(call)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            self._connection = None
            task.add_done_callback(lambda ended: _close_after(ended, connection))
            _cut(connection)
            await asyncio.wait({task}, timeout=_LAST_WORDS)
            raise
        return task.result()

    def _close_if_stuck(self) -> None:
        """No call may meet what the one before it left half done, or a transaction that has failed."""
        if self._connection is not None and self._connection.pgconn.transaction_status not in _USABLE:
            self._close()

    def _silent(self, kind: type[DatabaseUnreachable], reason: str) -> DatabaseUnreachable:
        self._close()
        return kind(f"The database does not answer the {self._role}: {reason}.")

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.pgconn.finish()


async def _nothing(connection: Connection) -> None:
    """Being connected is all."""


async def execute(connection: Connection, statement: Statement[T], *, prepare: bool | None = None) -> T:
    """Run a statement on an open connection of ours. Errors of the driver pass as they are."""
    cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
    await cursor.execute(statement.text(), statement.params, prepare=prepare)
    return statement.decode(await cursor.fetchall())


def _cut(connection: Connection) -> None:
    """Shut the socket down, without closing it: its number stays taken for as long as the event loop watches it."""
    with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)


def _close_after(call: asyncio.Future[Any], connection: Connection) -> None:
    """Close the connection of a call that has ended, and look at its error, so that nobody is told of it."""
    if not call.cancelled():
        call.exception()
    connection.pgconn.finish()
