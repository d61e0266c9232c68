"""The one table of what errors ask for: every SQLSTATE has an answer, and the log never quotes a row."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import errors

from millpond.store.sqlstates import REACTIONS, Reaction, reaction, said
from tests.worker.support import Store

RETRY, RECONNECT, ISOLATE = Reaction.RETRY, Reaction.RECONNECT, Reaction.ISOLATE

ASKED = {
    "08006": RECONNECT,  # connection failure
    "08P01": RECONNECT,  # protocol violation
    "0A000": RECONNECT,  # cached plan must not change result type
    "22003": ISOLATE,  # numeric value out of range
    "22P05": ISOLATE,  # untranslatable character
    "23505": ISOLATE,  # unique violation
    "23514": ISOLATE,  # check violation
    "25006": RECONNECT,  # read only
    "25P02": RECONNECT,  # in a failed transaction
    "25P03": RECONNECT,  # idle in a transaction for too long
    "26000": RECONNECT,  # prepared statement is not there
    "28P01": RECONNECT,  # wrong password
    "3D000": RECONNECT,  # no such database
    "40001": RETRY,  # serialization failure
    "40P01": RETRY,  # deadlock
    "40003": RECONNECT,  # statement completion unknown
    "42501": RETRY,  # insufficient privilege
    "42P01": RETRY,  # no such table
    "42P05": RECONNECT,  # prepared statement is there already
    "53100": RETRY,  # disk full
    "53200": RETRY,  # out of memory
    "53300": RECONNECT,  # too many connections
    "54000": ISOLATE,  # program limit exceeded
    "55P03": RETRY,  # lock not available
    "57014": RETRY,  # cancelled
    "57P01": RECONNECT,  # admin shutdown
    "57P02": RECONNECT,  # crash shutdown
    "57P03": RECONNECT,  # cannot connect now
    "57P04": RECONNECT,  # database dropped
    "57P05": RECONNECT,  # idle for too long
    "58030": RETRY,  # I/O error
    "P0001": ISOLATE,  # raise exception
    "XX000": RETRY,  # internal error
    "XX001": ISOLATE,  # data corrupted
}


@pytest.mark.parametrize(("code", "asked"), ASKED.items())
def test_what_an_error_asks_for(code: str, asked: Reaction) -> None:
    assert reaction(errors.lookup(code)("x")) is asked


def test_codes_that_nobody_has_heard_of_are_tried_again() -> None:
    unknown = type("Unknown", (psycopg.DatabaseError,), {"sqlstate": "ZZ999"})
    assert reaction(unknown()) is RETRY


def test_what_the_driver_says_by_itself() -> None:
    assert reaction(psycopg.OperationalError("server closed the connection unexpectedly")) is RECONNECT
    assert reaction(psycopg.InterfaceError("the connection is lost")) is RECONNECT
    assert reaction(psycopg.DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")) is ISOLATE
    assert reaction(psycopg.ProgrammingError("cannot adapt type")) is RETRY


def test_every_entry_of_the_table_is_reached() -> None:
    """No entry is hidden by another, and none is for a class of codes that does not exist."""
    classes = (each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, psycopg.Error))
    known = {each.sqlstate for each in classes if each.sqlstate}
    for entry, asked in REACTIONS.items():
        codes = [code for code in known if code.startswith(entry)]
        assert codes, entry
        assert any(reaction(errors.lookup(code)("x")) is asked for code in codes), entry


def test_the_log_does_not_quote_rows(store: Store) -> None:
    insert = "INSERT INTO millpond.jobs (tenant_id, executor, args, priority) VALUES ('t', 'e', '\"canary\"', -1)"
    with store.database.connect() as connection, pytest.raises(errors.CheckViolation) as raised:
        connection.execute(insert)
    assert "canary" in str(raised.value)
    assert "canary" not in said(raised.value)
    assert "23514" in said(raised.value)


def test_the_log_takes_one_line_for_an_error() -> None:
    assert said(psycopg.OperationalError("connection failed:\n  is the server running?\n")) == "connection failed:"
    assert said(psycopg.OperationalError("")) == "OperationalError"
    assert said(errors.lookup("57014")("x")) == "QueryCanceled (SQLSTATE 57014)"
