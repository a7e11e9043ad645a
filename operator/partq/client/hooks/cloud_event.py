"""CloudEvents in messages: binary mode with attributes as headers, or structured mode in JSON."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol, Self

from partq.errors import BadRequestError
from partq.excerpts import excerpt
from partq.wire import structured_event
from partq.wire.batch import Message

PREFIX = "ce_"
"""What begins the name of a header that has an attribute, as in Kafka's binding."""
CONTENT_TYPE = "content-type"
"""The header that has the attribute `datacontenttype`."""
KEY = "partitionkey"
"""The extension that is the partition key of the message."""
STRUCTURED = "application/cloudevents"
"""What the content type of an event in structured mode begins with."""
SPEC_VERSION = "1.0"

_NAME = re.compile("[a-z0-9]{1,20}")
_TEXTS = ("id", "source", "type", "subject", "dataschema", "datacontenttype")
_NEEDED = ("id", "source", "type")


class EventCarrier(Protocol):
    """A message as a consumer hands it out."""

    @property
    def key(self) -> str | None:
        """Its partition key."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers."""

    @property
    def raw_value(self) -> bytes:
        """Its content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudEvent:
    """A CloudEvent of version 1.0, in binary or structured mode.

    ```python
    event = CloudEvent(id="17", source="/shop", type="order.paid", data=b"{}", key="order-17")
    await producer.send(event.data, key=event.key, headers=event.headers)
    ...
    event = CloudEvent.from_message(message)
    ```

    Raises:
        BadRequestError: an attribute is of a wrong type, or empty; names it.
    """

    id: str
    """Together with `source` it names the event; a repeat has the same."""
    source: str
    """A URI reference of what has made the event."""
    type: str
    """What has happened, such as `com.example.order.paid`."""
    data: bytes = b""
    """The value of the message."""
    key: str | None = None
    """The partition key of the message: the extension `partitionkey`."""
    subject: str | None = None
    """What of the source it is about."""
    time: datetime | None = None
    """When it happened; with a time zone."""
    datacontenttype: str | None = None
    """The media type of `data`, such as `application/json`."""
    dataschema: str | None = None
    """A URI of the schema of `data`."""
    extensions: Mapping[str, str] = field(default_factory=dict)
    """Other attributes, as texts; their names are 1 to 20 lower-case letters and digits."""

    def __post_init__(self) -> None:
        for name in _TEXTS:
            text: object = getattr(self, name)
            if not (text is None and name not in _NEEDED) and not (isinstance(text, str) and text):
                raise BadRequestError(f"cloud event: {name}: got {text!r}, expected text")
        if type(self.data) is not bytes:
            raise BadRequestError(
                f"cloud event: data: got {type(self.data).__name__}, expected bytes"
            )
        time: object = self.time
        if time is not None and not (isinstance(time, datetime) and time.tzinfo is not None):
            raise BadRequestError(
                f"cloud event: time: got {excerpt(repr(time))}, expected a datetime with a time "
                "zone"
            )
        for name, text in self.extensions.items():
            is_taken = name in {*_TEXTS, "specversion", "time", "data", KEY}
            if is_taken or not _NAME.fullmatch(name) or not isinstance(text, str):
                raise BadRequestError(
                    f"cloud event: extensions: got {excerpt(repr(name))}, expected a name of 1 to "
                    "20 lower-case letters and digits that is not an attribute, and a text"
                )

    @property
    def headers(self) -> dict[str, str]:
        """The headers of its message in binary mode."""
        return {
            CONTENT_TYPE if name == "datacontenttype" else f"{PREFIX}{name}": text
            for name, text in self._attributes().items()
        }

    def to_message(self) -> Message:
        """Return its message in binary mode, for `send_many`; its event time is `time`."""
        return Message(self.key, self.data, self.headers, self._time_ms)

    def to_structured_message(self) -> Message:
        """Return its message in structured mode: the value is JSON that has all of it but the key.

        Data whose `datacontenttype` is JSON is part of that JSON, and text is a string of it.
        Other data is in base64.
        """
        value = structured_event.encode(self._attributes(), self.data)
        headers = {CONTENT_TYPE: structured_event.CONTENT_TYPE}
        return Message(self.key, value, headers, self._time_ms)

    def _attributes(self) -> dict[str, str]:
        attributes = {"specversion": SPEC_VERSION}
        attributes |= {name: text for name in _TEXTS if (text := getattr(self, name)) is not None}
        if self.time is not None:
            attributes["time"] = self.time.isoformat().replace("+00:00", "Z")
        return {**attributes, **self.extensions}

    @property
    def _time_ms(self) -> int:
        return 0 if self.time is None else max(0, int(self.time.timestamp() * 1000))

    @staticmethod
    def is_in(message: Message | EventCarrier) -> bool:
        """Say whether a message has a CloudEvent that `from_message` reads, in either mode."""
        headers = _lower(message.headers)
        return f"{PREFIX}specversion" in headers or _is_structured(headers)

    @classmethod
    def from_message(cls, message: Message | EventCarrier) -> Self:
        """Return the event that a message has.

        Args:
            message: as a consumer hands it out, or a `Message` of a batch or a `Reader`. Headers
                without the prefix `ce_` are left out.

        Raises:
            BadRequestError: it has none, or one in another format than JSON, of another version, or
                without an attribute that every event has; says which.
        """
        headers = _lower(message.headers)
        value = message.value if isinstance(message, Message) else message.raw_value
        if _is_structured(headers):
            found, data = structured_event.decode(value)
            where = "attribute "
        else:
            found, data = _binary_attributes(headers), value
            where = f"header {PREFIX}"
        if missing := [name for name in ("specversion", *_NEEDED) if name not in found]:
            raise BadRequestError(
                f"cloud event: got a message without the {where}{missing[0]}, expected it"
            )
        version = found.pop("specversion")
        if version != SPEC_VERSION:
            raise BadRequestError(
                f"cloud event: specversion: got {excerpt(repr(version))}, expected {SPEC_VERSION}"
            )
        key = found.pop(KEY, None)
        return cls(
            id=found.pop("id"),
            source=found.pop("source"),
            type=found.pop("type"),
            data=data,
            key=key if message.key is None else message.key,
            subject=found.pop("subject", None),
            time=_time(found.pop("time", None)),
            datacontenttype=found.pop("datacontenttype", None),
            dataschema=found.pop("dataschema", None),
            extensions=found,
        )


def _is_structured(headers: Mapping[str, str]) -> bool:
    essence = headers.get(CONTENT_TYPE, "").partition(";")[0].strip().lower()
    return essence == structured_event.CONTENT_TYPE


def _binary_attributes(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes in the headers of a message.

    Raises:
        BadRequestError: it has an event in another format than JSON.
    """
    content_type = headers.get(CONTENT_TYPE)
    if content_type is not None and content_type.lower().startswith(STRUCTURED):
        raise BadRequestError(
            f"cloud event: got the content type {excerpt(content_type)}, expected binary mode or "
            f"{structured_event.CONTENT_TYPE}: decode its value by an SDK of CloudEvents"
        )
    found = {
        name.removeprefix(PREFIX): text for name, text in headers.items() if name.startswith(PREFIX)
    }
    return found if content_type is None else {**found, "datacontenttype": content_type}


def _lower(headers: Mapping[str, str] | None) -> dict[str, str]:
    return {name.lower(): text for name, text in (headers or {}).items()}


def _time(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadRequestError(
            f"cloud event: time: got {excerpt(repr(text))}, expected one as RFC 3339 has it"
        ) from error
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
