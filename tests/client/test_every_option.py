"""Every option of every client: a wrong type or range is an error that names it, as it is made."""

import inspect
import math
import re
from dataclasses import fields
from datetime import timedelta

import numpy as np
import pytest

from partq import (
    AsyncSqlFence,
    Browser,
    Consumer,
    LogReader,
    Producer,
    SettingsError,
    SqlFence,
)
from partq.client.audit_reader import AuditReader
from partq.client.produce.batch_producer import BatchProducer
from partq.client.producer_state import producer_due
from partq.client.transport.options import ConnectionOptions
from partq.settings import BrokerSettings, Number

GOOD = {
    Producer: {"url": "http://h:1", "queue": "orders"},
    Consumer: {"url": "http://h:1", "queue": "orders", "group": "workers"},
    BatchProducer: {"url": "http://h:1", "queue": "orders", "token": None, "producer": "p"},
    Browser: {"url": "http://h:1", "queue": "orders"},
    LogReader: {"url": "http://h:1", "queue": "orders"},
    AuditReader: {"url": "http://h:1", "queue": "orders"},
    SqlFence: {"scope": "s", "paramstyle": "qmark"},
    AsyncSqlFence: {"scope": "s"},
}
EVERY = [(kind, name) for kind in GOOD for name in inspect.signature(kind).parameters]
SHARED = "url queue token namespace ca_file"
OWN = {
    Producer: "producer_id value_serializer interceptors linger_ms max_batch_bytes "
    "max_batch_count compression max_pending_messages max_pending_bytes delivery_timeout_s "
    "connect_timeout_s clock",
    Consumer: "group member on_assigned on_revoked on_error on_active on_inactive on_lanes "
    "priority ranges value_deserializer interceptors auto_ack credit credit_bytes handle_signals "
    "leave_timeout_s connect_timeout_s max_processing_s clock",
    BatchProducer: "producer max_pending_bytes delivery_timeout_s connect_timeout_s clock",
    Browser: "pin timeout_s",
    LogReader: "timeout_s fetch_bytes",
    AuditReader: "timeout_s fetch_bytes",
}
FLAGS = {"auto_ack", "handle_signals"}
WHOLE = {
    "max_batch_bytes", "max_batch_count", "max_pending_messages", "max_pending_bytes", "credit",
    "credit_bytes", "fetch_bytes",
}  # fmt: skip
SECONDS = {
    "linger_ms", "delivery_timeout_s", "connect_timeout_s", "leave_timeout_s", "max_processing_s",
    "timeout_s",
}  # fmt: skip


@pytest.mark.parametrize("kind", OWN)
def test_every_client_shows_each_of_its_options(kind):
    """In its signature, which `help` and editors show; the URL alone may go without its name."""
    shown = inspect.signature(kind).parameters
    assert sorted(shown) == sorted([*SHARED.split(), *OWN[kind].split()])
    assert [name for name in shown if shown[name].kind is inspect.Parameter.KEYWORD_ONLY] == [
        name for name in shown if name != "url"
    ]
    said = "".join(each.__doc__ or "" for each in kind.__mro__)
    assert all(re.search(rf"\b{name}\b[^\n]*:", said) for name in shown)


@pytest.mark.parametrize("kind", OWN)
def test_the_options_that_all_clients_have_are_those_of_a_connection(kind):
    given = ConnectionOptions("http://h:1", "orders", token="s3cret").arguments()
    assert list(given) == SHARED.split()
    kind(**{**GOOD[kind], **given})
    assert "s3cret" not in repr(ConnectionOptions("http://h:1", "orders", token="s3cret"))


def refused(kind, name, value):
    with pytest.raises(SettingsError) as caught:
        kind(**{**GOOD[kind], name: value})
    return caught.value.message


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_what_is_of_no_type_that_an_option_has_is_refused(kind, name):
    # A list is what interceptors are in; its item is not one.
    wrong_list = f"{name}[0]: got int" if name == "interceptors" else f"{name}: got list"
    for value, told in ((object(), f"{name}: got object"), ([1], wrong_list)):
        assert f"{told}, expected" in refused(kind, name, value)


@pytest.mark.parametrize(("kind", "name"), [each for each in EVERY if each[1] in FLAGS])
@pytest.mark.parametrize("value", ["no", "", 0, 1, None])
def test_a_flag_is_true_or_false(kind, name, value):
    """The text `no` counted as true."""
    told = refused(kind, name, value)
    assert told.startswith(f"{name}: got ")
    assert "expected True or False" in told


@pytest.mark.parametrize(("kind", "name"), [each for each in EVERY if each[1] in WHOLE])
@pytest.mark.parametrize(
    ("value", "says"),
    [
        (1.5, "got 1.5, expected a whole number"),
        (True, "got bool, expected a whole number"),
        ("10", "got str, expected a whole number"),
        (None, "got NoneType, expected a whole number"),
        (math.nan, "got nan, expected a whole number"),
        (0, "got 0, expected 1 to "),
        (2**70, f"got {2**70}, expected 1 to "),
    ],
)
def test_a_number_of_things_is_whole(kind, name, value, says):
    assert refused(kind, name, value).startswith(f"{name}: {says}")


@pytest.mark.parametrize(("kind", "name"), [each for each in EVERY if each[1] in SECONDS])
@pytest.mark.parametrize(
    ("value", "says"),
    [
        (True, "got bool, expected a number"),
        ("5", "got str, expected a number"),
        (timedelta(seconds=5), "got timedelta, expected a number"),
        (None, "got NoneType, expected a number"),
        (math.nan, "got nan, expected 0"),
        (math.inf, "got inf, expected 0"),
        (-1, "got -1, expected 0"),
    ],
)
def test_a_time_is_a_number_within_its_range(kind, name, value, says):
    assert refused(kind, name, value).startswith(f"{name}: {says}")


@pytest.mark.parametrize("number", [np.int64(5), np.int32(5), np.uint8(5)])
def test_whole_numbers_of_numpy_are_numbers(number):
    for kind, name in EVERY:
        if name in WHOLE | SECONDS:
            kind(**{**GOOD[kind], name: number})
    for kind, name in EVERY:
        if name in SECONDS:
            kind(**{**GOOD[kind], name: np.float32(5)})


@pytest.mark.parametrize(
    ("kind", "name", "value", "says"),
    [
        (Producer, "compression", "gzip", "compression: got 'gzip', expected one of auto, "),
        (Producer, "producer_id", "", "producer_id ''; expected 1 to 128 printable"),
        (BatchProducer, "producer", "p\n", "producer 'p\\n'; expected 1 to 128 printable"),
        (BatchProducer, "producer", None, "producer: got NoneType, expected text"),
        (Browser, "pin", "", "pin: got '', expected"),
        (Consumer, "group", "", "group: got '', expected a name"),
        (Consumer, "priority", 10, "priority: got 10, expected 0 to 9"),
        (Consumer, "priority", -1, "priority: got -1, expected 0 to 9"),
        (Consumer, "priority", True, "priority: got bool, expected a whole number"),
        (Consumer, "ranges", [(0, 65_537)], "ranges: got 65537, expected 0 to 65536"),
        (Consumer, "ranges", [(0, 9), (8, 12)], "ranges: got the range from 8 on twice"),
        (Consumer, "ranges", "0-9", "ranges: got str, expected pairs of slots, (first, stop)"),
        (Consumer, "ranges", [7], "ranges: got list, expected pairs of slots, (first, stop); in"),
        (LogReader, "queue", "", "queue: got '', expected a name"),
        (Consumer, "group", "..", "group: got '..', expected a DNS label"),
        (Consumer, "member", "", "member: got '', expected a name"),
        (Consumer, "member", "..", "member: got '..', expected printable characters, other than ."),
        (Consumer, "member", "a\n", r"member: got 'a\n', expected printable characters, other"),
        (LogReader, "queue", ".", "queue: got '.', expected a DNS label"),
        (Browser, "pin", "..", "pin: got '..', expected printable characters, other than . and"),
        (Producer, "producer_id", ".", "producer_id '.'; expected 1 to 128 printable characters, "),
        (SqlFence, "scope", "", "scope: got 0 characters"),
        (AsyncSqlFence, "dialect", "oracle", "dialect: got 'oracle', expected one of sqlite, "),
    ],
)  # fmt: skip
def test_a_text_that_is_none_of_the_possible_ones(kind, name, value, says):
    assert refused(kind, name, value).startswith(says)


CALLS = [kind for kind in GOOD if "token" in inspect.signature(kind).parameters]
URLS_WITH_A_PASSWORD = [
    "http://user:s3cret@h:1",
    "http://s3cret@h:1",
    "https://h:1, http://user:s3cret@h:2",
    "http://user:s3cret,1@h:1",
    "http://user:s3cret/1@h:1",
    "ftp://user:s3cret@h:1",
    "user:s3cret@h:1",
]


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("url", URLS_WITH_A_PASSWORD)
def test_a_url_with_a_password_is_refused_without_it(kind, url):
    """Brokers know tokens alone: the password would go over the network for nothing."""
    told = refused(kind, "url", url)
    assert told.startswith("url: got a user or a password")
    assert "token" in told
    assert "s3cret" not in told


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("token", ["", " ", "\t"])
def test_an_empty_token_is_refused(kind, token):
    """As a variable that was never set gives it; None is a caller without one."""
    told = refused(kind, "token", token)
    assert told.startswith("token: got")
    assert "leave it out" in told or "cannot be printed" in told


async def test_the_options_of_a_function_too():
    with pytest.raises(SettingsError, match="timeout_s: got str, expected a number"):
        await producer_due("http://h:1", "p", queue="orders", timeout_s="5")


@pytest.mark.req("AZR-35")
def test_a_message_is_tried_for_longer_than_a_partition_needs_another_broker():
    """By default, and with brokers of the longest lease."""
    lease = next(field for field in fields(BrokerSettings) if field.name == "lease_ttl_s")
    longest = next(each.high for each in lease.type.__metadata__ if isinstance(each, Number))
    tried = inspect.signature(Producer).parameters["delivery_timeout_s"].default
    assert (tried, longest) == (120, 60)
