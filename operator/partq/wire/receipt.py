"""Receipts of pulled messages: a text that says which delivery of which message is acknowledged."""

import base64
import binascii
import zlib
from dataclasses import astuple, dataclass
from typing import Self

from partq.core.model import PartitionId
from partq.errors import BadRequestError
from partq.excerpts import excerpt

MAX_RECEIPT_CHARS = 128
"""A longer text is no receipt."""
_VERSION = b"\x01"
_CHECK_BYTES = 4
_MAX_NUMBER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class PulledReceipt:
    """One message as it was delivered; its owner is the flow, under the token of the two epochs.

    Its text is opaque to callers: version, numbers of 7 bits a byte, and a checksum, in the
    alphabet of URLs. It is no secret and grants nothing: the call needs the token of a consumer.
    """

    generation: int
    index: int
    broker_epoch: int
    epoch: int
    delivery: int
    offset: int
    flow: int

    @property
    def partition(self) -> PartitionId:
        """The partition of the message."""
        return PartitionId(self.generation, self.index)

    def encode(self) -> str:
        """Return its text."""
        body = bytearray(_VERSION)
        for number in astuple(self):
            _append(body, number)
        body += _check_of(body)
        return base64.urlsafe_b64encode(body).rstrip(b"=").decode()

    @classmethod
    def decode(cls, text: str) -> Self:
        """Read the text of a receipt.

        Raises:
            BadRequestError: no broker wrote it, or it was cut or changed on its way.
        """
        try:
            if len(text) > MAX_RECEIPT_CHARS:
                raise ValueError(
                    f"got {len(text)} characters, expected {MAX_RECEIPT_CHARS} or less"
                )
            data = base64.b64decode(text.encode() + b"=" * (-len(text) % 4), b"-_", validate=True)
            body, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
            if not body or check != _check_of(body):
                raise ValueError("its checksum is wrong")
            if not body.startswith(_VERSION):
                raise ValueError(f"got version {body[0]}, expected {_VERSION[0]}")
            return cls(*_numbers(body[1:]))
        except (ValueError, TypeError, binascii.Error) as error:
            raise BadRequestError(
                f"receipt {excerpt(text)!r}: {error}; send the `receipt` of a pulled message "
                "unchanged"
            ) from error


def _append(body: bytearray, number: int) -> None:
    while number > 0x7F:
        body.append(number & 0x7F | 0x80)
        number >>= 7
    body.append(number)


def _numbers(body: bytes) -> list[int]:
    numbers, number, shift = [], 0, 0
    for byte in body:
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            if number > _MAX_NUMBER:
                raise ValueError(f"got number {number}, expected at most {_MAX_NUMBER}")
            numbers.append(number)
            number = shift = 0
    if shift:
        raise ValueError("it ends within a number")
    return numbers


def _check_of(body: bytes | bytearray) -> bytes:
    return zlib.crc32(body).to_bytes(_CHECK_BYTES, "big")
