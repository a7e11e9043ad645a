"""Values of messages as JSON."""

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class JsonSerializer:
    """Makes JSON of a value: what `json` takes, and dataclasses, msgspec structs, dates, UUIDs.

    ```python
    Producer(url, queue="orders", token=token, value_serializer=JsonSerializer())
    ```
    """

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode

    def __call__(self, value: object) -> bytes:
        """Return the JSON of a value, in UTF-8.

        Raises:
            TypeError, ValueError: JSON has nothing for it.
        """
        return self._encode(value)


class JsonDeserializer(Generic[T]):
    """Makes a value of JSON.

    ```python
    Consumer(url, queue="orders", group="workers", token=token,
             value_deserializer=JsonDeserializer(Order))
    ```

    Args:
        type: what the value has to be: a dataclass, a TypedDict, a msgspec struct, `dict[str, int]`
            and the like. None: whatever the JSON has.
    """

    def __init__(self, type: type[T] | None = None) -> None:  # noqa: A002  the word for it
        decoder = msgspec.json.Decoder() if type is None else msgspec.json.Decoder(type)
        self._decode: Callable[[bytes], T] = decoder.decode

    def __call__(self, data: bytes) -> T:
        """Return the value.

        Raises:
            ValueError: it is not JSON, or not of the type; says where.
        """
        return self._decode(data)
