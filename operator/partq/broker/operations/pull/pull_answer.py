"""The answer to a pull, encoded while its messages are taken, so that it has a bound as JSON."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain, compress, starmap
from typing import cast

from partq.broker.operations.message_json import contents, numbering_bytes
from partq.broker.partition.audit_buffer import parts_of
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.core.cursor.windows import Window
from partq.core.model import Cause
from partq.core.ranges import Ranges
from partq.server.memory import Hold
from partq.store.records.log import Entry
from partq.wire import batch, frames
from partq.wire.calls import body_codec
from partq.wire.calls.answers import PulledMessage
from partq.wire.receipt import PulledReceipt

MAX_ANSWER_BYTES = 8 * 1024 * 1024
"""Of JSON; one message is always there, however large it is."""
MESSAGE_BYTES = 400
"""Bytes that a message counts beside its content: its place, its token and its receipt."""


@dataclass(frozen=True, slots=True)
class TakenWindow:
    """A window that is delivered by the answer, and its messages as JSON."""

    header: frames.Deliver
    window: Window
    messages: list[bytes]


def offsets_of(window: Window) -> list[int]:
    """Return the offsets of the messages that a window holds."""
    return list(chain.from_iterable(starmap(range, parts_of(window))))


def causes_of(window: Window) -> list[Cause]:
    """Return the cause of each message that a window holds."""
    return list(map(Cause, window.causes or [window.cause] * window.messages))


def left_of(taken: TakenWindow, consumed: ConsumedPartition) -> TakenWindow | None:
    """Return what of a window was not taken back since it was taken; None: nothing."""
    window, lanes = taken.window, consumed.lanes
    if lanes is None:
        is_gone = consumed.book.was_rewound(window.stop, taken.header.delivery)
        return None if is_gone else taken
    held = Ranges(lanes.delivered(window.start, window.stop))
    is_held = [held.end_of_run(offset) > offset for offset in offsets_of(window)]
    if all(is_held):
        return taken
    messages = list(compress(taken.messages, is_held))
    bits = sum(1 << offset - window.start for offset in compress(offsets_of(window), is_held))
    left = replace(
        window,
        mask=bits.to_bytes((window.stop - window.start + 7) // 8, "little"),
        causes=bytes(compress(window.causes, is_held)),
        messages=len(messages),
    )
    return TakenWindow(taken.header, left, messages) if messages else None


class PullReply:
    """The answer to a pull.

    Args:
        hold: what the answer holds of the memory of all requests.
    """

    def __init__(self, hold: Hold) -> None:
        self.hold = hold
        self.taken: list[TakenWindow] = []
        self.is_full = False
        self.lacks_bytes = 0
        """What the next message needs of the memory of all requests, which has too little."""
        self._size = 0
        self._offset = 0
        self._beside_bytes = MESSAGE_BYTES
        """What a message of this batch counts beside its content."""
        self._contents: list[bytes] = []
        """Of the batch that was encoded last, from `_offset` on."""
        self._encoded_bytes = 0
        """What these hold, until they are delivered."""

    def encode_fitting(self, entry: Entry, offset: int, limit: int) -> int:
        """Encode messages of a batch from an offset on; return how many of them fit."""
        self.forget_encoded()
        self._offset = offset
        self._beside_bytes = beside = MESSAGE_BYTES + numbering_bytes(entry)
        before = self._size
        stop = min(entry.first + entry.count, offset + limit, self._raw_stop(entry, offset))
        for content in contents(entry, offset, stop):
            encoded = body_codec.encode(content)
            size = before + beside + len(encoded)
            is_first = not self.taken and not self._contents
            if size > MAX_ANSWER_BYTES and not is_first:
                self.is_full = True
                break
            if not self.hold.try_take(beside + len(encoded)):
                self.lacks_bytes = beside + len(encoded)
                break
            self._encoded_bytes += beside + len(encoded)
            self._contents.append(encoded)
            before = size
        return len(self._contents)

    def forget_encoded(self) -> None:
        """Give back what was encoded and is not delivered: a batch may be encoded often."""
        self.hold.give_back(self._encoded_bytes)
        self._contents, self._encoded_bytes = [], 0

    def _raw_stop(self, entry: Entry, offset: int) -> int:
        """Return where the messages end that may fit: as JSON they are not smaller."""
        ends = batch.read_ends(entry.data, batch.read_header(entry.data))
        at = offset - entry.first
        start = ends[at - 1] if at else 0
        while at < entry.count and ends[at] - start <= MAX_ANSWER_BYTES:
            at += 1
        return max(entry.first + at, offset + 1)

    def add(self, flow: int, header: frames.Deliver, window: Window) -> None:
        """Note a window of the batch that was encoded last, delivered to the flow of a number."""
        counts = dict(header.redeliveries)
        messages = []
        for offset, cause in zip(offsets_of(window), causes_of(window), strict=True):
            place = PulledMessage(
                partition=f"{header.generation}.{header.partition}",
                broker_epoch=header.broker_epoch,
                epoch=header.epoch,
                delivery=header.delivery,
                offset=offset,
                publish_time_ms=header.at_ms,
                append_broker_epoch=header.append_broker_epoch,
                cause="" if cause is Cause.NONE else cause.name.lower(),
                redeliveries=counts.get(offset, 0),
                receipt=PulledReceipt(
                    *(header.generation, header.partition, header.broker_epoch, header.epoch),
                    *(header.delivery, offset, flow),
                ).encode(),
            )
            if header.producer:
                place.producer = header.producer
                place.sequence = header.number + offset - header.first_offset
            # What does not decode stays in its place: whether to pass over it, the member says.
            content = self._contents[offset - self._offset]
            self._encoded_bytes -= self._beside_bytes + len(content)
            messages.append(body_codec.encode(place)[:-1] + b"," + content[1:])
        self.forget_encoded()
        self._size += sum(map(len, messages))
        self.taken.append(TakenWindow(header, window, messages))

    def messages(self) -> list[PulledMessage]:
        """Return all messages as one piece of JSON, which stands for them in an answer."""
        return joined(m for each in self.taken for m in each.messages)


def joined(messages: Iterable[bytes]) -> list[PulledMessage]:
    """Return messages in JSON as one piece of it, which stands for them in an answer."""
    return cast(list[PulledMessage], body_codec.Raw(b"[" + b",".join(messages) + b"]"))
