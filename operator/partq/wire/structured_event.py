"""CloudEvents in structured mode: the JSON format, with all of an event in the value."""

import base64
import binascii
from collections.abc import Mapping

import msgspec

from partq.errors import BadRequestError
from partq.excerpts import excerpt

CONTENT_TYPE = "application/cloudevents+json"
"""The media type of the format."""


def is_json(content_type: str | None) -> bool:
    """Say whether a media type is JSON, so that its data is JSON in the event, too."""
    essence = (content_type or "").partition(";")[0].strip().lower()
    return essence.endswith("+json") or essence in {"application/json", "text/json"}


def encode(attributes: Mapping[str, str], data: bytes) -> bytes:
    """Return an event as JSON. Data is JSON or text where its content type and bytes are."""
    members: dict[str, object] = dict(attributes)
    content_type = attributes.get("datacontenttype")
    if is_json(content_type) and _is_valid_json(data):
        members["data"] = msgspec.Raw(data)
    elif (content_type or "").lower().startswith("text/") and _is_text(data):
        members["data"] = data.decode()
    elif data:
        members["data_base64"] = base64.b64encode(data).decode()
    return msgspec.json.encode(members)


def decode(value: bytes) -> tuple[dict[str, str], bytes]:
    """Return the attributes and the data of an event.

    Raises:
        BadRequestError: it is not JSON, or no event; says what.
    """
    try:
        members = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadRequestError(
            f"cloud event: got a value in structured mode that is not a JSON object ({error}), "
            "expected the attributes of an event"
        ) from error
    data, encoded = members.pop("data", None), members.pop("data_base64", None)
    attributes = {
        name: text for name, raw in members.items() if (text := _attribute(name, raw)) is not None
    }
    if data is not None and encoded is not None:
        raise BadRequestError("cloud event: got data and data_base64, expected one of them")
    if encoded is not None:
        return attributes, _decoded(encoded)
    if data is None:
        return attributes, b""
    content_type = attributes.get("datacontenttype")
    if content_type is None or is_json(content_type):
        return attributes, bytes(data)
    text = msgspec.json.decode(data)
    if not isinstance(text, str):
        raise BadRequestError(
            f"cloud event: data: got {excerpt(bytes(data).decode())} of the content type "
            f"{excerpt(content_type)}, expected text, or data_base64"
        )
    return attributes, text.encode()


def _attribute(name: str, raw: msgspec.Raw) -> str | None:
    """Return the value of an attribute as text; None: it is null, as if it were not there."""
    value = msgspec.json.decode(raw)
    if isinstance(value, bool | int):
        return bytes(raw).decode()
    if value is not None and not isinstance(value, str):
        raise BadRequestError(
            f"cloud event: {excerpt(name)}: got {excerpt(bytes(raw).decode())}, expected text, a "
            "whole number, true or false"
        )
    return value


def _decoded(raw: msgspec.Raw) -> bytes:
    text = msgspec.json.decode(raw)
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, binascii.Error, ValueError) as error:
        raise BadRequestError(
            f"cloud event: data_base64: got {excerpt(bytes(raw).decode())}, expected base64"
        ) from error


def _is_valid_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
