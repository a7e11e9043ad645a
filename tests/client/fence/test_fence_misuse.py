"""What a fence says to those who give it no message, or have made no table."""

import sqlite3
from types import SimpleNamespace

import pytest

from partq import BadRequestError, SqlFence, Token
from partq.core.model import BrokerEpoch, Epoch, Offset

MESSAGE = SimpleNamespace(
    key="k", token=Token(1, BrokerEpoch(2), Epoch(3), Offset(4)), append_broker_epoch=2
)


@pytest.fixture
def cursor():
    database = sqlite3.connect(":memory:")
    yield database.cursor()
    database.close()


def test_what_is_no_message_is_refused(cursor):
    fence = SqlFence("orders", paramstyle="qmark", dialect="sqlite")
    with pytest.raises(BadRequestError, match="message: got bytes, expected a message as"):
        fence.admits(cursor, b"no message")


def test_without_its_table_the_error_of_the_driver_says_what_to_do(cursor):
    fence = SqlFence("orders", paramstyle="qmark", dialect="sqlite")
    with pytest.raises(sqlite3.OperationalError) as refusal:
        fence.admits(cursor, MESSAGE)
    assert "fence.create(connection) once" in refusal.value.__notes__[0]
