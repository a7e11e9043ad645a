"""Acks that must not count: a good one, with one thing wrong."""

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from partq.wire import frames

FIRST_REQUEST: Final = 1 << 40
"""Request ids from here on are those of acks that must not count."""
MANY: Final = 1_000_000
"""More messages than any partition has."""


def undelivered_stop(position: int, end: int, is_done: Callable[[int], bool]) -> int:
    """Return the end of a cumulative ack that covers a message which no flow has been sent.

    Args:
        position: where the next delivery begins, as far as was seen.
        end: of the log. `MANY` is returned where it has no such message.
        is_done: whether an offset needs no delivery. A broker moves beyond those, so that an ack
            up to there counts.
    """
    while position < end and is_done(position):
        position += 1
    return position + 1 if position < end else MANY


def forged(good: frames.Ack, number: int, beyond: int, draw: random.Random) -> frames.Ack:
    """Return an ack under an older token, or of what was not delivered.

    `number`: no two forged acks of a connection have the same. `beyond`: an offset that no flow has
    been sent under the token of the good one.
    """
    request = FIRST_REQUEST + number
    if good.state_key is not None:
        good = _like(good, state=b"-1")  # to be found where it is read
    match draw.randrange(3):
        case 0:
            return _like(good, request=request, ranges=[], upto=beyond)
        case 1:
            return _like(good, request=request, broker_epoch=good.broker_epoch - 1)
        case _:
            return _like(good, request=request, epoch=good.epoch - 1)


def forged_of_share(
    good: frames.Ack,
    number: int,
    first_epoch: int,
    offsets: Sequence[Sequence[int]],
    draw: random.Random,
) -> tuple[frames.Ack, int | None]:
    """Return an ack under an older token, or of what its member does not have, and which that is.

    Args:
        good: the ack that it is made from.
        number: no two forged acks of a connection have the same.
        first_epoch: under which the member was bound.
        offsets: what the member does not have, by the reason.
        draw: chance that can be repeated.
    """
    found = [each for each in offsets if each]
    if found and draw.random() < 0.7:
        offset = draw.choice(draw.choice(found))
        return forged_again(good, number, offset), offset
    older = {"epoch": first_epoch - 1}
    if draw.random() < 0.5:
        older = {"broker_epoch": good.broker_epoch - 1}
    if good.state_key is not None:
        good = _like(good, state=b"-1")
    return _like(good, request=FIRST_REQUEST + number, **older), None


def forged_again(good: frames.Ack, number: int, offset: int) -> frames.Ack:
    """Return an ack of a message that its member has given back, and has not got again."""
    changes = {"ranges": [(offset, offset + 1)], "upto": -1, "state_key": None, "state": None}
    return _like(good, request=FIRST_REQUEST + number, **changes)


def _like(frame: frames.Ack, **changes: Any) -> frames.Ack:
    fields = {name: getattr(frame, name) for name in frame.__struct_fields__}
    return frames.Ack(**fields | changes)
