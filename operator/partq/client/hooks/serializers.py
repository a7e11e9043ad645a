"""From an application's values to the bytes of messages, and back."""

from collections.abc import Callable
from typing import Any, TypeVar

from partq.client.arguments import check_functions
from partq.errors import BadRequestError, PartqError, SettingsError
from partq.excerpts import represented

T = TypeVar("T")
ValueSerializer = Callable[[Any], bytes]
"""Returns the bytes of a value; called in the event loop, so it must not wait for anything."""
ValueDeserializer = Callable[[bytes], Any]
"""Returns the value of bytes; called where an application reads `value`."""


class DeserializationError(PartqError):
    """A `value_deserializer` has raised for one message; its `raw_value` has the bytes.

    The cause (`__cause__`) is what it has raised.
    """

    code = "deserialization_failed"


def check_serializer(name: str, function: object) -> None:
    """Check a serializer or deserializer; None is one that is left out.

    Raises:
        SettingsError: it is not callable, or cannot be called with one value; or it is a class
            whose instances are what is to be called.
    """
    if isinstance(function, type) and "__call__" in dir(function):  # not of its metaclass
        raise SettingsError(
            f"{name}: got the class {function.__name__}; expected an instance of it: "
            f"{function.__name__}()"
        )
    check_functions({name: function})


def serialized(serialize: ValueSerializer, value: object) -> bytes:
    """Return the bytes of a value.

    Raises:
        BadRequestError: the serializer has raised, or has returned something else.
    """
    try:
        data: object = serialize(value)
    except Exception as error:
        raise BadRequestError(
            f"value: the value_serializer has failed for {represented(value)}: "
            f"{represented(error, 200)}"
        ) from error
    if type(data) is not bytes:
        raise BadRequestError(
            f"value: the value_serializer has returned {type(data).__name__}, expected bytes"
        )
    return data


def deserialized(deserialize: Callable[[bytes], T], data: bytes, place: object) -> T:
    """Return the value of the bytes of a message; `place` names it in the error.

    Raises:
        DeserializationError: the deserializer has raised.
    """
    try:
        return deserialize(data)
    except Exception as error:
        raise DeserializationError(
            f"{place}: the value_deserializer has failed: {represented(error, 200)}; "
            "`raw_value` has the bytes: make a dead letter of it, or skip it"
        ) from error
