"""Rings the bells when the database says that there may be something to do. Only a hint: polling finds everything."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import sql

from millpond.errors import DatabaseUnreachable
from millpond.events import Observe
from millpond.store.channel import channel
from millpond.store.link import Link
from millpond.worker.bell import Bell
from millpond.worker.patience import Patience

_SILENCE = 15.0
"""Seconds without a notification after which the session proves, by a round trip, that it is still there."""


class Listener:
    """A service on a session of its own, outside of any pool or pooler."""

    def __init__(self, link: Link, schema: str, bells: Sequence[Bell], *, observe: Observe) -> None:
        self._link = link
        self._channel = channel(schema)
        self._bells = bells
        self._patience = Patience("listener", observe)

    async def run(self) -> None:
        """Listen; connect again when the session is gone."""
        try:
            while True:
                try:
                    await self._listen()
                except (DatabaseUnreachable, psycopg.Error, OSError) as error:
                    await self._link.close()
                    await self._patience.failed(error)
        finally:
            await self._link.close()

    async def _listen(self) -> None:
        connection = await self._link.connection()
        await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))
        self._patience.succeeded()
        self._ring()  # for what was announced while nobody listened
        while True:
            async for _ in connection.notifies(timeout=_SILENCE):
                self._ring()
            await connection.execute("SELECT 1")

    def _ring(self) -> None:
        for bell in self._bells:
            bell.ring()
