"""The forms of a DSN that people have at hand, all made into libpq's; and words for it that never hold the password."""

from __future__ import annotations

from typing import Final

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from millpond.errors import SettingsError

ACCEPTED: Final = (
    "must be a conninfo (host=… dbname=…), a URI (postgresql://user@host/dbname) or an SQLAlchemy URL "
    "(postgresql+psycopg://user@host/dbname)."
)


class _Hidden:
    """Stands in a message for a value that may hold a password."""

    def __repr__(self) -> str:
        return "(not shown)"


_HIDDEN: Final = _Hidden()


def conninfo(dsn: str) -> str:
    """This DSN as libpq, and so psycopg, takes it. Raises SettingsError, which does not repeat it."""
    try:
        plain = _from_sqlalchemy(dsn) if dsn.startswith("postgresql+") else make_conninfo(dsn)
    except (ProgrammingError, ArgumentError, ValueError):
        # Parsers quote what they trip over, which may be half a password: neither their words nor their error go on.
        raise SettingsError("dsn", _HIDDEN, ACCEPTED) from None
    if "@" in str(conninfo_to_dict(plain).get("host") or "")[1:]:
        # libpq ends the password at the first @, and would show the rest as the name of a host that is not found.
        raise SettingsError("dsn", _HIDDEN, "has an @ within its password: write it as %40.")
    return plain


def _from_sqlalchemy(dsn: str) -> str:
    url = make_url(dsn)
    params = dict(url.translate_connect_args(username="user", database="dbname"))
    for name, value in url.query.items():
        # asyncpg's word for it; the values are libpq's.
        known = "sslmode" if name == "ssl" else name
        params[known] = value if isinstance(value, str) else ",".join(value)
    return make_conninfo(**params)


def described(dsn: str) -> str:
    """Which database this DSN leads to, for a message: without the password, and without raising."""
    try:
        params = conninfo_to_dict(conninfo(dsn))
    except SettingsError:
        return "the database"
    where = params.get("host") or params.get("hostaddr") or "the local socket"
    port = f", port {params['port']}" if params.get("port") else ""
    name = f"database {params['dbname']!r}" if params.get("dbname") else "the default database"
    return f"{name} at {where}{port}"
