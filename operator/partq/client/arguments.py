"""What a client is made with: settings that cannot be used are refused by their names."""

import inspect
import re
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from types import MappingProxyType
from typing import cast
from urllib.parse import urlsplit

from partq.core.model import DNS_LABEL, MAX_QUEUE_NAME_CHARS, NAME_RULE, SLOT_COUNT, PartitionId
from partq.core.parts.declared_ranges import problem_of
from partq.core.producer_series import check_producer_id
from partq.errors import BadRequestError, SettingsError
from partq.excerpts import excerpt
from partq.path_names import EXPECTED, is_path_name

MAX_TIME_S = 86_400
MAX_INTEGER = 2**63 - 1
_NAME = re.compile(DNS_LABEL)


def check_range(name: str, value: object, least: float, most: float) -> None:
    """Check a number.

    Raises:
        SettingsError: it is no number, or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise SettingsError(f"{name}: got {type(value).__name__}, expected a number")
    number = cast(float, value)  # types know no order of Real
    if not least <= number <= most:
        raise SettingsError(f"{name}: got {value}, expected {least} to {most}")


def whole(name: str, value: object, least: int, most: int) -> int:
    """Check a whole number of whatever class, such as numpy's; return it as an `int`.

    Raises:
        SettingsError: it is no number, or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        got = value if is_number else type(value).__name__
        raise SettingsError(f"{name}: got {got}, expected a whole number")
    check_range(name, value, least, most)
    return int(value)


def slot_ranges(ranges: object) -> list[tuple[int, int]]:
    """Check ranges of slots; return them in order.

    Raises:
        SettingsError: they are no pairs of whole numbers, out of range, or overlap.
    """
    expected = "expected pairs of slots, (first, stop)"
    if isinstance(ranges, str | bytes) or not isinstance(ranges, Iterable):
        raise SettingsError(f"ranges: got {type(ranges).__name__}, {expected}")
    found = []
    for each in ranges:
        if not isinstance(each, tuple | list) or len(each) != 2:
            got = type(ranges).__name__
            raise SettingsError(f"ranges: got {got}, {expected}; in it is {excerpt(repr(each))}")
        found.append(
            (whole("ranges", each[0], 0, SLOT_COUNT), whole("ranges", each[1], 0, SLOT_COUNT))
        )
    if problem := problem_of(found):
        raise SettingsError(f"ranges: {problem}")
    return sorted(found)


def check_flags(flags: Mapping[str, object]) -> None:
    """Check what is True or False, by names: what merely counts as true may be meant otherwise.

    Raises:
        SettingsError: one is neither.
    """
    for name, flag in flags.items():
        try:
            check_flag(name, flag)
        except TypeError as error:
            raise SettingsError(str(error)) from None


def check_flag(name: str, flag: object) -> None:
    """Check what is True or False in a call about messages.

    Raises:
        TypeError: it is neither.
    """
    if not isinstance(flag, bool):
        got = excerpt(repr(flag)) if isinstance(flag, str | int) else type(flag).__name__
        raise TypeError(f"{name}: got {got}, expected True or False")


CALLED_WITH: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "on_assigned": ("partition",),
        "on_revoked": ("partition", "cause"),
        "on_active": ("partition",),
        "on_inactive": ("partition",),
        "on_lanes": ("partition", "ranges"),
        "on_error": ("error",),
        "on_lost": ("session",),
        "callback": ("message",),
        "find": (),
        "value_serializer": ("value",),
        "value_deserializer": ("data",),
    }
)
"""What the functions of an application are called with, by the argument that names them."""


def check_functions(functions: Mapping[str, object]) -> None:
    """Check what is to be called, by names; None is one that is left out.

    Raises:
        SettingsError: one cannot be called with what it is called with, `CALLED_WITH`.
    """
    for name, function in functions.items():
        if function is None:
            continue
        if not callable(function):
            raise SettingsError(f"{name}: got {type(function).__name__}, expected a function")
        try:
            signature = inspect.signature(function)
        except (ValueError, TypeError):
            continue  # some functions that are written in C do not say what they take
        try:
            signature.bind(*CALLED_WITH[name])
        except TypeError as error:
            expected = ", ".join(CALLED_WITH[name])
            raise SettingsError(
                f"{name}: got a function that does not take what it is called with ({error}); "
                f"expected one that can be called as {name}({expected})"
            ) from None


def check_clock(clock: object) -> None:
    """Check a clock.

    Raises:
        SettingsError: it cannot be called.
    """
    if not callable(clock):
        raise SettingsError(
            f"clock: got {type(clock).__name__}, expected a function that returns seconds"
        )


def check_texts(texts: Mapping[str, object], *, needed: tuple[str, ...] = ()) -> None:
    """Check texts by their names; None is one that is left out.

    Raises:
        SettingsError: one is not a text, or left out or empty and needed.
    """
    for name, text in texts.items():
        if not isinstance(text, str) and (text is not None or name in needed):
            raise SettingsError(f"{name}: got {type(text).__name__}, expected text")
        if not text and name in needed:
            raise SettingsError(f"{name}: got {excerpt(repr(text))}, expected a name")


_QUEUES = ("queue", "queues", "--queue")
"""Arguments that name queues."""


def check_names(names: Mapping[str, object], *, needed: tuple[str, ...] = ()) -> None:
    """Check names of namespaces, queues and groups; None or an empty one is left out.

    What no queue can be called is never waited for.

    Raises:
        SettingsError: one is not a text or not such a name, or left out and needed.
    """
    check_texts(names, needed=needed)
    for setting, name in names.items():
        if isinstance(name, str) and name and not _NAME.fullmatch(name):
            raise SettingsError(f"{setting}: got {excerpt(repr(name))}, expected {NAME_RULE}")
        if isinstance(name, str) and setting in _QUEUES and len(name) > MAX_QUEUE_NAME_CHARS:
            raise SettingsError(
                f"{setting}: got {excerpt(repr(name))} of {len(name)} characters, expected the "
                f"name of a queue, which has at most {MAX_QUEUE_NAME_CHARS}"
            )


def check_path_argument(name: str, text: object) -> None:
    """Check what names something in the path of a call; `name` is the setting's.

    Raises:
        SettingsError: it is not a text, is empty, or would not arrive as it is.
    """
    check_texts({name: text}, needed=(name,))
    if isinstance(text, str) and not is_path_name(text):
        raise SettingsError(f"{name}: got {excerpt(repr(text))}, expected {EXPECTED}")


def check_partitions(name: str, partitions: object) -> list[PartitionId]:
    """Return partitions that can be looked through: of a list, or of a mapping by them.

    Raises:
        SettingsError: it is something else.
    """
    if isinstance(partitions, str) or not isinstance(partitions, Iterable):
        raise SettingsError(f"{name}: got {type(partitions).__name__}, expected PartitionIds")
    found = []
    for each in partitions:
        if not isinstance(each, PartitionId):
            raise SettingsError(
                f"{name}: got {type(each).__name__}, expected a PartitionId, such as "
                "PartitionId.parse('1.3')"
            )
        found.append(each)
    return found


def check_by_partition(name: str, values: object) -> dict[PartitionId, object]:
    """Return a mapping by partitions; its values are not looked at.

    Raises:
        SettingsError: it is something else.
    """
    if not isinstance(values, Mapping):
        got = type(values).__name__
        raise SettingsError(f"{name}: got {got}, expected a mapping by PartitionId")
    check_partitions(name, values)
    return dict(values)


def check_producer(name: str, producer: object) -> None:
    """Check the name of a producer that numbers its messages; `name` is the setting's.

    Raises:
        SettingsError: it is no name that a broker takes.
    """
    if not isinstance(producer, str):
        raise SettingsError(f"{name}: got {type(producer).__name__}, expected text")
    try:
        check_producer_id(producer, name)
    except BadRequestError as error:
        raise SettingsError(error.message) from None


def check_token(token: str | None) -> None:
    """Check a token. What is wrong with it is told without it.

    Raises:
        SettingsError: it is not a text, is empty, or has a line end in it, as one has that was read
            from a file.
    """
    check_texts({"token": token})
    if token is not None and not token.strip(" "):
        raise SettingsError(
            "token: got an empty text, expected a bearer token; if it is read from a variable or a "
            "file, check whether that is set; leave it out to call without one"
        )
    if token is not None and not token.isprintable():
        raise SettingsError(
            "token: got characters that cannot be printed, such as the line end of the file that "
            "it was read from; strip it"
        )


def broker_urls(url: str) -> tuple[str, ...]:
    """Return the URLs of brokers in a text that has commas between them.

    Raises:
        SettingsError: it has none, or one of them is no scheme, host and port alone. A URL with a
            password is not repeated.
    """
    if not isinstance(url, str):
        raise SettingsError(
            f"url: got {type(url).__name__}, expected text; several URLs have commas between them"
        )
    if "@" in url:
        raise SettingsError(
            "url: got a user or a password (what is before an @), expected scheme, host and port "
            "alone, such as http://127.0.0.1:7411; brokers know callers by their token: give that"
        )
    urls = tuple(part.strip().rstrip("/") for part in url.split(",") if part.strip())
    if not urls or not all(part.startswith(("http://", "https://")) for part in urls):
        raise SettingsError(
            f"url {excerpt(url)!r}: expected one or more broker URLs, comma between them, "
            "such as http://127.0.0.1:7411"
        )
    for part in urls:
        if "/" in part.partition("://")[2] or "?" in part or "#" in part:
            raise SettingsError(
                f"url {excerpt(part)!r}: expected scheme, host and port alone, such as "
                "http://127.0.0.1:7411; the client adds the path"
            )
        try:
            urlsplit(part).port  # noqa: B018  reading it checks it
        except ValueError as error:
            raise SettingsError(
                f"url {excerpt(part)!r}: {error}; expected a port from 1 to 65535"
            ) from error
    return urls
