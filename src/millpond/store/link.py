"""One connection of the worker's own, which comes back by itself. Each loop has one, and none waits for another's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, LiteralString, Self, TypeVar, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import tuple_row

from millpond.errors import DatabaseUnreachable
from millpond.store.database import unreachable
from millpond.store.dsn import conninfo as plain_conninfo
from millpond.store.statement import Statement

T = TypeVar("T")

_CONNECT_TIMEOUT = 10
"""Seconds, per address."""

_PATIENCE: dict[str, Any] = {
    "connect_timeout": _CONNECT_TIMEOUT,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""For every connection of ours, unless the DSN says otherwise: a peer that vanished is noticed within half a minute."""


def conninfo(dsn: str, *, role: str) -> str:
    """The DSN with our patience put in where it has none of its own, and a name for `pg_stat_activity`."""
    ours = _PATIENCE | {"application_name": f"millpond {role}"}
    return make_conninfo("", **(ours | conninfo_to_dict(plain_conninfo(dsn))))


class Link:
    """A connection in autocommit mode that is opened when first needed, and anew after it broke.

    Not for concurrent use: each loop has its own, so that none can wait for another's statement.
    """

    def __init__(self, dsn: str, *, role: str, timeout: float) -> None:
        """`timeout`: seconds that one statement, with its answer, may take."""
        self._conninfo = conninfo(dsn, role=role)
        self._role = role
        self._timeout = timeout
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def run(self, statement: Statement[T]) -> T:
        """Run one statement in a transaction of its own.

        Raises DatabaseUnreachable when there is no connection, or no answer in time: whether the statement took effect
        is then unknown, and the connection is gone. Other errors of the database pass as they are.
        """
        async with self.answering() as connection:
            return await _execute(connection, statement)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Link]:
        """Run the statements of the body in one transaction."""
        async with self.answering() as connection, connection.transaction():
            yield self

    async def connection(self) -> psycopg.AsyncConnection[Any]:
        """The open connection itself, for what is not a statement: LISTEN."""
        if self._connection is None or self._connection.closed:
            try:
                self._connection = await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True)
            except psycopg.OperationalError as error:
                raise unreachable(self._conninfo, error) from error
        return self._connection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; the next statement opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                await connection.close()

    @contextlib.asynccontextmanager
    async def answering(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """The connection, for a body that talks to the database within the deadline. Raises as `run` does."""
        try:
            async with asyncio.timeout(self._timeout):
                yield await self.connection()
        except (TimeoutError, OSError, psycopg.OperationalError, psycopg.InterfaceError) as error:
            await self.close()
            reason = " ".join(str(error).split()) or f"no answer within {self._timeout:g} s"
            raise DatabaseUnreachable(f"The database does not answer the {self._role}: {reason}.") from error
        except asyncio.CancelledError:
            await (
                self.close()
            )  # a statement may have been cut short: what it did is not known, its session is not reused
            raise


async def _execute(connection: psycopg.AsyncConnection[Any], statement: Statement[T]) -> T:
    cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
    # Statements are composed from the package's own files: as trustworthy as literals.
    await cursor.execute(cast("LiteralString", statement.text()), statement.params)
    return statement.decode(await cursor.fetchall())
