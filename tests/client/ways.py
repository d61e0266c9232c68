"""Every kind of connection that a job can be written through, behind one synchronous face: each test runs on all.

A way does everything by its own library's means: begin, commit, roll back, savepoint. Asynchronous ones run on a loop
of their own, step by step.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import asyncpg
import django
import django.conf
import psycopg
from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from millpond.client import AsyncClient, Client
from millpond.job import JobId, NewJob
from millpond.testing.database import Database

T = TypeVar("T")

Run: TypeAlias = Callable[[Coroutine[Any, Any, Any]], Any]


@dataclass(frozen=True, kw_only=True)
class Way:
    """One open connection, and the client for it."""

    conn: Any
    client: Client | AsyncClient
    send: Callable[[Any, Sequence[NewJob]], list[JobId]]
    """Enqueue through this connection, by a client of the same kind."""
    execute: Callable[[str], object]
    """Run a statement of the application's own."""
    commit: Callable[[], object]
    rollback: Callable[[], object]
    savepoint: Callable[[], AbstractContextManager[object]]
    """A nested transaction, which an error in its body rolls back."""

    def enqueue_many(self, jobs: Sequence[NewJob]) -> list[JobId]:
        """Enqueue these jobs, in this order."""
        return self.send(self.client, jobs)

    def enqueue(self, args: object = None, *, tenant: str = "t", **options: Any) -> JobId:
        """Enqueue one job of the executor `work`."""
        options.setdefault("executor", "work")
        return self.enqueue_many([self.client.job({} if args is None else args, tenant=tenant, **options)])[0]


Opener: TypeAlias = Callable[[Database, Client], AbstractContextManager[Way]]

WAYS: dict[str, Opener] = {}


def _way(name: str) -> Callable[[Opener], Opener]:
    def add(opener: Opener) -> Opener:
        WAYS[name] = opener
        return opener

    return add


def _sync(client: Client, conn: Any, **parts: Any) -> Way:
    return Way(conn=conn, client=client, send=lambda by, jobs: by.enqueue_many(conn, jobs), **parts)


# ── synchronous ──────────────────────────────────────────────────────────────────────────────────────────────────────


@_way("psycopg Connection")
@contextmanager
def _psycopg(database: Database, client: Client) -> Iterator[Way]:
    with contextlib.closing(database.connect()) as conn:
        yield _sync(
            client,
            conn,
            execute=conn.execute,
            commit=conn.commit,
            rollback=conn.rollback,
            savepoint=conn.transaction,
        )


def _sqlalchemy_connection(driver: str) -> Opener:
    @contextmanager
    def opened(database: Database, client: Client) -> Iterator[Way]:
        engine = create_engine(database.url(driver), poolclass=NullPool)
        with engine.connect() as conn:
            yield _sync(
                client,
                conn,
                execute=conn.exec_driver_sql,
                commit=conn.commit,
                rollback=conn.rollback,
                savepoint=conn.begin_nested,
            )

    return opened


def _sqlalchemy_session(driver: str, *, scoped: bool) -> Opener:
    @contextmanager
    def opened(database: Database, client: Client) -> Iterator[Way]:
        maker = sessionmaker(create_engine(database.url(driver), poolclass=NullPool))
        session: Session | scoped_session[Session] = scoped_session(maker) if scoped else maker()
        with contextlib.closing(session):
            yield _sync(
                client,
                session,
                execute=lambda statement: session.execute(text(statement)),
                commit=session.commit,
                rollback=session.rollback,
                savepoint=session.begin_nested,
            )

    return opened


for _driver in ("psycopg", "psycopg2"):
    WAYS[f"SQLAlchemy Connection on {_driver}"] = _sqlalchemy_connection(_driver)
    WAYS[f"SQLAlchemy Session on {_driver}"] = _sqlalchemy_session(_driver, scoped=False)
    WAYS[f"SQLAlchemy scoped_session on {_driver}"] = _sqlalchemy_session(_driver, scoped=True)


@_way("Django connection")
@contextmanager
def _django(database: Database, client: Client) -> Iterator[Way]:
    with django_connection(database) as conn:
        conn.set_autocommit(False)
        yield _sync(
            client,
            conn,
            execute=lambda statement: conn.cursor().execute(statement),
            commit=conn.commit,
            rollback=conn.rollback,
            savepoint=_atomic,
        )


def _atomic() -> AbstractContextManager[object]:
    from django.db import transaction  # needs settings

    block: AbstractContextManager[object] = transaction.atomic()
    return block


@contextmanager
def django_connection(database: Database) -> Iterator[Any]:
    """`django.db.connection`, to this database."""
    if not django.conf.settings.configured:
        django.conf.settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "x"}})
        django.setup()
    from django.db import connection, connections  # needs settings

    given = psycopg.conninfo.conninfo_to_dict(database.dsn)
    names = {"dbname": "NAME", "host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD"}
    connections["default"].settings_dict.update(
        {names[key]: str(value) for key, value in given.items() if key in names}
    )
    try:
        yield connection
    finally:
        connection.close()
        del connections["default"]


# ── asynchronous ─────────────────────────────────────────────────────────────────────────────────────────────────────

AsyncOpener: TypeAlias = Callable[[Database, AsyncClient, Run], AbstractAsyncContextManager[Way]]


def _async_way(name: str) -> Callable[[AsyncOpener], AsyncOpener]:
    def add(opener: AsyncOpener) -> AsyncOpener:
        @contextmanager
        def opened(database: Database, client: Client) -> Iterator[Way]:
            twin = AsyncClient(schema=client.schema, max_args_bytes=client.max_args_bytes, notify=client.notify)
            with asyncio.Runner() as runner, _stepped(runner.run, opener(database, twin, runner.run)) as way:
                yield way

        WAYS[name] = opened
        return opener

    return add


@contextmanager
def _stepped(run: Run, entered: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """An asynchronous context manager, entered and left on the loop of `run`."""
    stack = contextlib.AsyncExitStack()
    value = run(stack.enter_async_context(entered))
    try:
        yield value
    except BaseException as error:
        if not run(stack.__aexit__(type(error), error, error.__traceback__)):
            raise
    else:
        run(stack.aclose())


def _async(client: AsyncClient, run: Run, conn: Any, *, savepoint: Callable[[], Any], **parts: Any) -> Way:
    return Way(
        conn=conn,
        client=client,
        send=lambda by, jobs: run(by.enqueue_many(conn, jobs)),
        savepoint=lambda: _stepped(run, savepoint()),
        **{name: _on(run, part) for name, part in parts.items()},
    )


def _on(run: Run, call: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., object]:
    return lambda *args: run(call(*args))


@_async_way("psycopg AsyncConnection")
@asynccontextmanager
async def _psycopg_async(database: Database, client: AsyncClient, run: Run) -> AsyncIterator[Way]:
    conn = await database.connect_async()
    try:
        yield _async(
            client,
            run,
            conn,
            execute=conn.execute,
            commit=conn.commit,
            rollback=conn.rollback,
            savepoint=conn.transaction,
        )
    finally:
        await conn.close()


def _sqlalchemy_async_connection(driver: str) -> AsyncOpener:
    @asynccontextmanager
    async def opened(database: Database, client: AsyncClient, run: Run) -> AsyncIterator[Way]:
        engine = create_async_engine(database.url(driver), poolclass=NullPool)
        async with engine.connect() as conn:
            yield _async(
                client,
                run,
                conn,
                execute=conn.exec_driver_sql,
                commit=conn.commit,
                rollback=conn.rollback,
                savepoint=conn.begin_nested,
            )

    return opened


def _sqlalchemy_async_session(driver: str, *, scoped: bool) -> AsyncOpener:
    @asynccontextmanager
    async def opened(database: Database, client: AsyncClient, run: Run) -> AsyncIterator[Way]:
        maker = async_sessionmaker(create_async_engine(database.url(driver), poolclass=NullPool))
        session: AsyncSession | async_scoped_session[AsyncSession] = (
            async_scoped_session(maker, scopefunc=lambda: None) if scoped else maker()
        )
        async with contextlib.aclosing(session):
            yield _async(
                client,
                run,
                session,
                execute=lambda statement: session.execute(text(statement)),
                commit=session.commit,
                rollback=session.rollback,
                savepoint=session.begin_nested,
            )

    return opened


def _sqlalchemy_run_sync(driver: str) -> AsyncOpener:
    """The synchronous client inside `AsyncSession.run_sync`, where code that knows nothing of await may run."""

    @asynccontextmanager
    async def opened(database: Database, client: AsyncClient, run: Run) -> AsyncIterator[Way]:
        inner = Client(schema=client.schema, max_args_bytes=client.max_args_bytes, notify=client.notify)
        async with AsyncSession(create_async_engine(database.url(driver), poolclass=NullPool)) as session:
            yield Way(
                conn=session.sync_session,
                client=inner,
                send=lambda by, jobs: run(session.run_sync(by.enqueue_many, jobs)),
                execute=lambda statement: run(session.execute(text(statement))),
                commit=lambda: run(session.commit()),
                rollback=lambda: run(session.rollback()),
                savepoint=lambda: _stepped(run, session.begin_nested()),
            )

    return opened


for _driver in ("psycopg", "asyncpg"):
    _async_way(f"SQLAlchemy AsyncConnection on {_driver}")(_sqlalchemy_async_connection(_driver))
    _async_way(f"SQLAlchemy AsyncSession on {_driver}")(_sqlalchemy_async_session(_driver, scoped=False))
    _async_way(f"SQLAlchemy async_scoped_session on {_driver}")(_sqlalchemy_async_session(_driver, scoped=True))
    _async_way(f"SQLAlchemy Session in run_sync on {_driver}")(_sqlalchemy_run_sync(_driver))


@_async_way("asyncpg Connection")
@asynccontextmanager
async def _asyncpg(database: Database, client: AsyncClient, run: Run) -> AsyncIterator[Way]:
    conn = await asyncpg.connect(database.url())
    try:
        async with _asyncpg_transactions(client, run, conn) as way:
            yield way
    finally:
        await conn.close()


@_async_way("asyncpg Connection of a pool")
@asynccontextmanager
async def _asyncpg_pool(database: Database, client: AsyncClient, run: Run) -> AsyncIterator[Way]:
    async with (
        asyncpg.create_pool(database.url(), min_size=1, max_size=1) as pool,
        pool.acquire() as conn,
        _asyncpg_transactions(client, run, conn) as way,
    ):
        yield way


@asynccontextmanager
async def _asyncpg_transactions(client: AsyncClient, run: Run, conn: Any) -> AsyncIterator[Way]:
    """asyncpg begins a transaction when told only; here, as with the others, there is always one."""
    transaction = conn.transaction()
    await transaction.start()

    async def ended(how: str) -> None:
        nonlocal transaction
        await getattr(transaction, how)()
        transaction = conn.transaction()
        await transaction.start()

    yield _async(
        client,
        run,
        conn,
        execute=conn.execute,
        commit=lambda: ended("commit"),
        rollback=lambda: ended("rollback"),
        savepoint=conn.transaction,
    )
    await transaction.rollback()
