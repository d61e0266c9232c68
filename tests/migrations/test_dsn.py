"""Every form of a DSN means the same, and no message holds a password."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import URL

from millpond.errors import SettingsError
from millpond.store.dsn import conninfo, described

WHAT = {"host": "db.example", "port": "6432", "user": "me", "password": "hush", "dbname": "app"}


@pytest.mark.parametrize(
    "dsn",
    [
        "host=db.example port=6432 user=me password=hush dbname=app",
        "postgresql://me:hush@db.example:6432/app",
        "postgres://me:hush@db.example:6432/app",
        "postgresql+psycopg://me:hush@db.example:6432/app",
        "postgresql+psycopg2://me:hush@db.example:6432/app",
        "postgresql+asyncpg://me:hush@db.example:6432/app?prepared_statement_cache_size=0",
        "postgresql+psycopg://me:hush@/app?host=db.example&port=6432",
    ],
)
def test_every_form_means_the_same(dsn: str) -> None:
    assert conninfo_to_dict(conninfo(dsn)) == WHAT


@pytest.mark.parametrize(
    ("dsn", "params"),
    [
        ("postgresql+asyncpg://db/app?ssl=verify-full", {"sslmode": "verify-full"}),
        (
            "postgresql+psycopg://db/app?sslmode=require&connect_timeout=3",
            {"sslmode": "require", "connect_timeout": "3"},
        ),
        ("postgresql+psycopg://me@/app?host=one:1&host=two:2", {"host": "one,two", "port": "1,2"}),
        ("postgresql://one:1,two:2/app", {"host": "one,two", "port": "1,2"}),
        ("postgresql+psycopg2:///app?host=/var/run/postgresql", {"host": "/var/run/postgresql"}),
        ("postgresql://%2Fvar%2Frun/app", {"host": "/var/run"}),
        ("postgresql+psycopg://me:p%40ss%3Aw%2Frd@db/app", {"password": "p@ss:w/rd"}),
        ("service=mine", {"service": "mine"}),
    ],
)
def test_parameters_are_kept(dsn: str, params: dict[str, str]) -> None:
    assert params.items() <= conninfo_to_dict(conninfo(dsn)).items()


@given(
    user=st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1),
    password=st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1),
    dbname=st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1),
    driver=st.sampled_from(["postgresql+psycopg", "postgresql+psycopg2", "postgresql+asyncpg", None]),
)
def test_any_text_survives(user: str, password: str, dbname: str, driver: str | None) -> None:
    if driver is None:  # libpq's own form, in which every part is quoted
        dsn = f"postgresql://{quote(user, safe='')}:{quote(password, safe='')}@db/{quote(dbname, safe='')}"
    else:
        url = URL.create(driver, username=user, password=password, host="db", database=dbname)
        dsn = url.render_as_string(hide_password=False)
    params = conninfo_to_dict(conninfo(dsn))
    assert (params["user"], params["password"], params["dbname"], params["host"]) == (user, password, dbname, "db")


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://me:hu@sh@db/app",
        "postgresql+psycopg://me:hu@sh@db/app",
        "postgresql://me:hush@[::1/app",
        "postgresql+psycopg://me:hush@[::1/app",
        "postgresql+psycopg://me:hush@db:port/app",
        "password=hush hush",
        "pasword=hush",
        "postgresql+psycopg://me:hush@db/app?pasword=hush",
        "mysql+pymysql://me:hush@db/app",
        "hush",
    ],
)
def test_what_is_none_is_refused_without_repeating_it(dsn: str) -> None:
    with pytest.raises(SettingsError, match=r"^dsn = \(not shown\)") as refused:
        conninfo(dsn)
    assert "hu" not in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None
    assert described(dsn) == "the database"


def test_a_database_is_described_without_the_password() -> None:
    assert described("postgresql://me:hush@db.example:6432/app") == "database 'app' at db.example, port 6432"
    assert described("dbname=app") == "database 'app' at the local socket"
    assert described("host=/run") == "the default database at /run"
