"""Bodies of calls as JSON, and texts of queries and headers, to and from their types.

Each field is checked; an error names it, what was got and what was expected.
"""

import json
import re
from collections.abc import Collection
from contextlib import suppress
from typing import Protocol, TypeVar, get_args

import msgspec

from partq.errors import BadJsonError, BadRequestError
from partq.excerpts import excerpt
from partq.wire.calls import shape_errors
from partq.wire.json_limits import check_parts

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
MAX_TOLD_BYTES = 256 * 1024
"""Of a larger body an error does not say what was got: that takes another look at all of it."""

encode = msgspec.json.Encoder().encode
"""Return a value as JSON."""
Raw = msgspec.Raw
"""JSON that is encoded already: it stands in a value as it is."""


def decode(body: bytes, kind: type[T]) -> T:
    """Read a JSON body.

    Raises:
        BadJsonError: not JSON, or not of this shape, or with a field twice; names the field.
        BatchTooLargeError: of more parts than a body may have.
    """
    check_parts(body)
    try:
        found = msgspec.json.decode(body, type=kind)
        # A field that stands there twice is one colon that the value does not have. What has
        # colons besides (a field that is set to its default, an escape) is looked at again.
        # A value that is encoded with its defaults may have as many colons by chance.
        if (
            not _omits_defaults(kind)
            or _COLON in body
            or encode(found).count(b":") != body.count(b":")
        ):
            _check_fields(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadJsonError(f"body: {_reason(body, error, kind)}; {_SEE}") from error
    return found


_COLON = b"\\u003"
"""How the escape of a colon begins."""
_SEE = "see docs/protocol.md for what it takes"


def _omits_defaults(kind: object) -> bool:
    """Say whether values of a struct, or of a list of one, are encoded without their defaults."""
    element = next(iter(get_args(kind)), kind)
    config = getattr(element, "__struct_config__", None)
    return config is not None and config.omit_defaults


def _check_fields(body: bytes) -> None:
    """Refuse a field that stands twice in one object: which of them counts, nobody could say.

    Raises:
        BadJsonError: one does; names it.
    """
    try:
        json.loads(body, object_pairs_hook=_check_object)
    except (ValueError, RecursionError) as error:
        raise BadJsonError(f"body: {error}; {_SEE}") from error


def _check_object(pairs: list[tuple[str, object]]) -> None:
    names: set[str] = set()
    for name, _ in pairs:
        if name in names:
            raise BadJsonError(
                f"body: {excerpt(name)}: got the field twice in one object, "
                "expected once; send one of them"
            )
        names.add(name)


_ESCAPES = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""Escapes of JSON texts; the group is half of a character that takes two of them."""


def _reason(body: bytes, error: Exception, kind: object) -> str:
    """Say what is wrong with a body; the decoder's own words where it is not JSON."""
    if isinstance(error, msgspec.ValidationError):
        value = shape_errors.UNKNOWN
        if len(body) <= MAX_TOLD_BYTES:
            with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                value = msgspec.json.decode(body)
        return shape_errors.describe(error, value, kind)
    if not body.strip():
        return "nothing came, expected JSON"
    try:
        body.decode()
    except UnicodeDecodeError as found:
        return f"byte {found.start} is not UTF-8"
    for escape in _ESCAPES.finditer(body):
        if escape[1]:
            return (
                f"{_place_of_half(body)}half of a character, {escape[0].decode()}, at byte "
                f"{escape.start()}: send both halves, and what is not a text as value_base64"
            )
    return str(error)


def _place_of_half(body: bytes) -> str:
    """Return the first text of a body that UTF-8 cannot hold, by its path; empty: not known."""
    if len(body) > MAX_TOLD_BYTES:
        return ""
    with suppress(ValueError, RecursionError):
        place = shape_errors.place_of_half(json.loads(body))  # takes halves of characters
        return f"{place}: " if place else ""
    return ""


class Texts(Protocol):
    """Headers or the parameters of a query: a name may stand there several times."""

    def getall(self, key: str, default: list[str], /) -> list[str]:
        """Return every value of a name."""


def read_texts(texts: Texts, kind: type[S], what: str, *, repeatable: Collection[str] = ()) -> S:
    """Read the parameters of a query, or headers; others than those of `kind` are left alone.

    Each stands there once, but for those in `repeatable`, of which the first counts.

    Raises:
        BadRequestError: one is missing, out of range or there twice; names it.
    """
    given: dict[str, str] = {}
    for field in msgspec.structs.fields(kind):
        values = texts.getall(field.encode_name, [])
        if len(values) > 1 and field.encode_name not in repeatable:
            raise BadRequestError(
                f"{what}: {field.encode_name}: got {len(values)} of them, expected one"
            )
        if values:
            given[field.encode_name] = values[0]
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        told = shape_errors.describe(error, given, kind).removesuffix(" or null")
        raise BadRequestError(f"{what}: {told}; {_SEE}") from error
