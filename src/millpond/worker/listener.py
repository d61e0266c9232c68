"""Rings the bells when the database says that there may be something to do. Only a hint: polling finds everything."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import psycopg

from millpond.errors import DatabaseUnreachable
from millpond.events import Observe
from millpond.store import sessions
from millpond.store.channel import channel
from millpond.store.link import Link
from millpond.worker.bell import Bell
from millpond.worker.patience import Patience

logger = logging.getLogger(__name__)

SILENCE: Final = 15.0
"""Seconds without a notification after which the session proves that it is still there, and still subscribed."""


class Listener:
    """A service on a session of its own, outside of any pool or pooler."""

    def __init__(
        self,
        link: Link,
        schema: str,
        bells: Sequence[Bell],
        *,
        observe: Observe,
        silence: float = SILENCE,
        trust_pooler: bool = False,
    ) -> None:
        """`silence`: seconds until a quiet session is asked for its proof, and that it has to answer in.

        `trust_pooler`: somebody has said that this session is one's own, even though a pooler stands before the server.
        """
        self._link = link
        self._channel = channel(schema)
        self._bells = bells
        self._patience = Patience("listener", observe)
        self._silence = silence
        self._trust_pooler = trust_pooler
        link.hurry(silence)

    async def run(self) -> None:
        """Listen; connect again when the session is gone. Ends when there is none to be had: then polling has to do."""
        try:
            while True:
                try:
                    if not self._trust_pooler and await self._link.through_pooler():
                        logger.warning("A pooler stands before the database, where nobody can listen: set listen_dsn.")
                        return
                    await self._listen()
                except (DatabaseUnreachable, psycopg.Error) as error:
                    await self._link.close()
                    await self._patience.failed(error)
        finally:
            await self._link.close()

    async def _listen(self) -> None:
        """Subscribe, and ring for what comes; ends in an error, sooner or later."""
        await self._link.listen(self._channel)
        self._patience.succeeded()
        self._ring()  # for what was announced while nobody listened
        while True:
            while await self._link.notified(self._silence):
                self._ring()
            if not await self._link.run(sessions.listens(self._channel)):
                raise DatabaseUnreachable("The session does not listen any more.")

    def _ring(self) -> None:
        for bell in self._bells:
            bell.ring()
