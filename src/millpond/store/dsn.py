"""The forms of a DSN that people have at hand, all made into libpq's; and words for it that never hold the password."""

from __future__ import annotations

from typing import Final

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from millpond.errors import SettingsError

ACCEPTED: Final = (
    "must be a conninfo (host=… dbname=…), a URI (postgresql://user@host/dbname) or an SQLAlchemy URL "
    "(postgresql+psycopg://user@host/dbname)."
)

_SQLALCHEMYS_OWN: Final = ("prepared_statement_cache_size", "async_fallback")
"""What its URLs for asyncpg may hold beside the parameters of the connection."""


class _Hidden:
    """Stands in a message for a value that may hold a password."""

    def __repr__(self) -> str:
        return "(not shown)"


_HIDDEN: Final = _Hidden()


def conninfo(dsn: str) -> str:
    """This DSN as libpq, and so psycopg, takes it. Raises SettingsError, which does not repeat it."""
    try:
        plain = _from_sqlalchemy(dsn) if dsn.startswith("postgresql+") else make_conninfo(dsn)
    except (ProgrammingError, ValueError):
        # Parsers quote what they trip over, which may be half a password: neither their words nor their error go on.
        raise SettingsError("dsn", _HIDDEN, ACCEPTED) from None
    if "@" in str(conninfo_to_dict(plain).get("host") or "")[1:]:
        # libpq ends the password at the first @, and would show the rest as the name of a host that is not found.
        raise SettingsError("dsn", _HIDDEN, "has an @ within its password: write it as %40.")
    return plain


def _from_sqlalchemy(dsn: str) -> str:
    """As SQLAlchemy itself would hand it to psycopg, several hosts included."""
    # Imported here: it takes longer than all the rest of millpond, and most who import that have no such URL.
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(dsn)
    except ArgumentError as error:
        raise ValueError("not a URL of SQLAlchemy's") from error
    url = url.difference_update_query(_SQLALCHEMYS_OWN).set(drivername="postgresql+psycopg")
    if "ssl" in url.query:  # asyncpg's word for it, with libpq's values
        url = url.update_query_dict({"sslmode": url.query["ssl"]}).difference_update_query(["ssl"])
    _, params = url.get_dialect()().create_connect_args(url)
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
