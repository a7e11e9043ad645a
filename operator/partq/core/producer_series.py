"""Numbers of messages that come by plain HTTP: one series per producer and key."""

import hashlib
import re
from collections.abc import Sequence
from itertools import pairwise

from partq.core.dead_letters import PRODUCER_PREFIX
from partq.errors import BadRequestError
from partq.excerpts import excerpt
from partq.path_names import EXPECTED, is_path_name

MAX_EXACT_INTEGER = 2**53 - 1
"""Within what every language's JSON, and the store's arithmetic, hold exactly."""
MAX_PRODUCER_CHARS = 128

_NUMBERED = re.compile(r"@[0-9]+\Z")
"""Ends what `series_of_layout` returns."""
_SEPARATOR = "\x1f"
_DIGEST_BYTES = 16


def check_producer_id(name: str, said_in: str) -> None:
    """See that a client's producer may call itself so; `said_in` names where it does.

    Raises:
        BadRequestError: not 1 to 128 characters, or what cannot stand in a path, or a name under
            which partq keeps numbers itself.
    """
    if not (1 <= len(name) <= MAX_PRODUCER_CHARS and is_path_name(name)):
        raise BadRequestError(
            f"{said_in} {excerpt(name)!r}; expected 1 to {MAX_PRODUCER_CHARS} {EXPECTED}"
        )
    if name.startswith(PRODUCER_PREFIX):
        raise BadRequestError(
            f"{said_in} {excerpt(name)!r}; names that begin with {PRODUCER_PREFIX} are those of "
            "dead letters: choose another one"
        )
    if _NUMBERED.search(name):
        raise BadRequestError(
            f"{said_in} {excerpt(name)!r}; under names that end with @ and a number the numbers of "
            "a producer are kept after a change of the partition count: choose another one, such "
            "as with a - instead of the @"
        )


def series_name(producer: str, key: str) -> str:
    """Return under which name the store counts the messages of one key of a producer.

    Never the id of a producer that numbers by partition: the separator is not printable. The key
    is there as a digest, so a record stays small; two keys of one digest, which would be taken for
    one series, have a chance of 2**-64 at four billion keys.
    """
    digest = hashlib.blake2b(key.encode(), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{producer}{_SEPARATOR}{digest}"


def series_of_layout(producer: str, layout: int) -> str:
    """Return under which name the store counts fixed numbers of a producer.

    What a number stands for depends on the slots of its partition, so each layout of the partition
    has a series for itself.
    """
    return producer if layout <= 1 else f"{producer}@{layout}"


def producer_of(name: str) -> str:
    """Return the producer's id of the name under which the store counts its messages."""
    return name.partition(_SEPARATOR)[0]


def is_series(name: str) -> bool:
    """Tell whether a name is that of a series, and not of a producer that numbers by partition."""
    return _SEPARATOR in name


def runs(numbers: Sequence[int]) -> list[range]:
    """Cut a list of numbers, by position, where one does not follow the one before it."""
    cuts = [at for at, (one, two) in enumerate(pairwise(numbers), 1) if two != one + 1]
    return [range(start, stop) for start, stop in pairwise([0, *cuts, len(numbers)])]
