"""Services beside a body: each is one coroutine. The order in which they are nested is the order in which they stop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Protocol


class Service(Protocol):
    """Something that runs until it is cancelled."""

    async def run(self) -> None: ...


class FinishingService(Protocol):
    """Something that is never cut short: told to finish, it does what is left, and ends."""

    async def run(self) -> None: ...

    def finish(self) -> None: ...


@contextlib.asynccontextmanager
async def background(*services: Service) -> AsyncIterator[None]:
    """Run services while the body runs, then cancel them. One that fails cancels the body, and its error surfaces."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(service.run(), name=type(service).__name__) for service in services]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()


@contextlib.asynccontextmanager
async def finishing(service: FinishingService) -> AsyncIterator[None]:
    """Run a service while the body runs, then let it finish, whatever ended the body. Its failure cancels the body."""
    work = asyncio.ensure_future(service.run())  # apart from the group below, which cancels its own when the body fails
    try:
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(_outcome_of(work))
            try:
                yield
            finally:
                watch.cancel()
    finally:
        service.finish()
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            work.cancel()  # whoever waited was cancelled a second time: now at once
            raise


async def _outcome_of(work: asyncio.Future[None]) -> None:
    await asyncio.shield(work)
