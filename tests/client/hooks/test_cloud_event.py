"""CloudEvents in both modes: into messages, through a broker, and back."""

import asyncio
import base64
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest

from partq import BadRequestError, CloudEvent, Consumer, JsonDeserializer, Message, Producer
from partq.testing.local_broker import LocalBroker
from tests.client.member import WAIT_S

AT = datetime(2026, 5, 17, 8, 30, 0, 250_000, tzinfo=UTC)
NEEDED = {"id": "17", "source": "/shop", "type": "order.paid"}
EVENT = CloudEvent(
    **NEEDED, data=b'{"n":1}', key="order-17", subject="order-17", time=AT,
    datacontenttype="application/json", dataschema="https://example.com/order",
    extensions={"traceparent": "00-1-2-01", "tenant": "ä"},
)  # fmt: skip
HEADERS = {
    "ce_specversion": "1.0", "ce_id": "17", "ce_source": "/shop", "ce_type": "order.paid",
    "ce_subject": "order-17", "ce_time": "2026-05-17T08:30:00.250000Z",
    "content-type": "application/json", "ce_dataschema": "https://example.com/order",
    "ce_traceparent": "00-1-2-01", "ce_tenant": "ä",
}  # fmt: skip


def message(**changes):
    headers = {name: text for name, text in {**HEADERS, **changes}.items() if text is not None}
    return Message("order-17", b'{"n":1}', headers)


def test_its_headers_are_those_of_the_binding_for_kafka():
    assert EVENT.headers == HEADERS
    made = EVENT.to_message()
    assert (made.key, made.value, made.headers) == ("order-17", b'{"n":1}', HEADERS)
    assert made.event_time_ms == int(AT.timestamp() * 1000)
    assert CloudEvent.from_message(made) == EVENT


def test_an_event_needs_three_attributes_alone():
    event = CloudEvent(**NEEDED)
    assert CloudEvent.from_message(event.to_message()) == event


def test_names_of_headers_in_any_case_and_others_beside_them():
    odd = {name.title(): text for name, text in HEADERS.items()} | {"other": "x"}
    assert CloudEvent.from_message(Message("order-17", b'{"n":1}', odd)) == EVENT


def test_a_message_without_a_key_has_that_of_its_extension():
    headers = {**HEADERS, "ce_partitionkey": "k"}
    assert CloudEvent.from_message(Message(None, b"", headers)).key == "k"
    assert CloudEvent.from_message(Message("own", b"", headers)).key == "own"


def test_a_time_keeps_its_instant():
    time = AT.astimezone(timezone(timedelta(hours=2)))
    event = CloudEvent(**NEEDED, time=time)
    assert CloudEvent.from_message(event.to_message()).time == AT


@pytest.mark.parametrize(("changes", "says"), [
    ({"id": ""}, "id: got '', expected text"),
    ({"type": 5}, "type: got 5, expected text"),
    ({"subject": ""}, "subject: got '', expected text"),
    ({"data": "text"}, "data: got str, expected bytes"),
    ({"time": datetime(2026, 1, 1)}, "expected a datetime with a time zone"),  # noqa: DTZ001
    ({"extensions": {"Tenant": "a"}}, "extensions: got 'Tenant', expected a name"),
    ({"extensions": {"id": "a"}}, "extensions: got 'id', expected a name"),
    ({"extensions": {"n": 1}}, "extensions: got 'n', expected a name"),
])  # fmt: skip
def test_attributes_that_cannot_be_are_refused(changes, says):
    with pytest.raises(BadRequestError, match=f"cloud event: .*{says}"):
        CloudEvent(**{**NEEDED, **changes})


@pytest.mark.parametrize(("changes", "says"), [
    ({"ce_specversion": None}, "without the header ce_specversion"),
    (
        {"ce_specversion": None, "content-type": "application/cloudevents-batch+json"},
        "content type application/cloudevents-batch",
    ),
    ({"ce_specversion": "0.3"}, "specversion: got '0.3', expected 1.0"),
    ({"ce_source": None}, "without the header ce_source"),
    ({"ce_time": "today"}, "time: got 'today', expected one as RFC 3339"),
])  # fmt: skip
def test_a_message_without_such_an_event_is_refused(changes, says):
    given = message(**changes)
    assert CloudEvent.is_in(given) == ("ce_specversion" not in changes or "0.3" in changes.values())
    with pytest.raises(BadRequestError, match=says):
        CloudEvent.from_message(given)


def structured(**members):
    value = json.dumps({"specversion": "1.0", **NEEDED, **members}).encode()
    headers = {"Content-Type": "application/cloudevents+json; charset=utf-8"}
    return Message(None, value, headers)


def test_in_structured_mode_the_value_has_all_of_it():
    made = EVENT.to_structured_message()
    assert (made.key, made.headers) == (
        "order-17",
        {"content-type": "application/cloudevents+json"},
    )
    assert made.event_time_ms == int(AT.timestamp() * 1000)
    assert json.loads(made.value) == {
        "specversion": "1.0", **NEEDED, "subject": "order-17", "data": {"n": 1},
        "time": "2026-05-17T08:30:00.250000Z", "datacontenttype": "application/json",
        "dataschema": "https://example.com/order", "traceparent": "00-1-2-01", "tenant": "ä",
    }  # fmt: skip
    assert CloudEvent.is_in(made)
    assert CloudEvent.from_message(made) == EVENT


@pytest.mark.parametrize(("content_type", "data", "member"), [
    ("application/json", b'{"n": 1}', ("data", {"n": 1})),
    ("application/problem+json; v=1", b"[1]", ("data", [1])),
    ("application/json", b"{broken", ("data_base64", base64.b64encode(b"{broken").decode())),
    ("text/plain", "ä".encode(), ("data", "ä")),
    ("text/plain", b"\xff", ("data_base64", "/w==")),
    (None, b"bytes", ("data_base64", "Ynl0ZXM=")),
    ("image/png", b"", None),
])  # fmt: skip
def test_data_comes_back_as_it_was(content_type, data, member):
    event = replace(EVENT, data=data, datacontenttype=content_type)
    made = event.to_structured_message()
    shown = {name: it for name, it in json.loads(made.value).items() if name.startswith("data_b")}
    shown |= {name: it for name, it in json.loads(made.value).items() if name == "data"}
    assert shown == (dict([member]) if member else {})
    assert CloudEvent.from_message(made) == event


def test_what_others_write_in_structured_mode():
    event = CloudEvent.from_message(
        structured(partitionkey="k", data={"a": 1.5}, subject=None, sampled=True, level=3)
    )
    assert (event.key, event.data, event.subject) == ("k", b'{"a": 1.5}', None)
    assert event.extensions == {"sampled": "true", "level": "3"}


@pytest.mark.parametrize(("value", "says"), [
    (b"[]", "not a JSON object"),
    (b"\xff", "not a JSON object"),
    (structured(id=None).value, "without the attribute id"),
    (structured(specversion="0.3").value, "specversion: got '0.3'"),
    (structured(level={}).value, "level: got {}, expected text"),
    (structured(level=1.5).value, "level: got 1.5, expected text"),
    (structured(data=1, data_base64="").value, "got data and data_base64"),
    (structured(data_base64="#").value, 'data_base64: got "#", expected base64'),
    (structured(data_base64=1).value, "data_base64: got 1, expected base64"),
    (structured(datacontenttype="text/plain", data=1).value, "data: got 1 of the content type"),
])  # fmt: skip
def test_values_that_are_no_event_are_refused(value, says):
    given = Message(None, value, structured().headers)
    with pytest.raises(BadRequestError, match=says):
        CloudEvent.from_message(given)


async def test_it_comes_through_a_broker_as_it_is():
    """Its bytes, also where a deserializer makes values of them."""
    async with asyncio.timeout(WAIT_S), LocalBroker(groups=["workers"]) as local:
        async with Producer(local.url, queue="orders", token=local.tokens.produce) as producer:
            await producer.send_and_wait(EVENT.data, key=EVENT.key, headers=EVENT.headers)
            await (await producer.send_many([EVENT.to_structured_message()]))
        async with Consumer(
            local.url, queue="orders", group="workers", token=local.tokens.consume,
            value_deserializer=JsonDeserializer(), handle_signals=False,
        ) as consumer:  # fmt: skip
            received = await anext(consumer)
            assert received.value == {"n": 1}
            assert CloudEvent.from_message(received) == EVENT
            assert CloudEvent.from_message(await anext(consumer)) == EVENT
