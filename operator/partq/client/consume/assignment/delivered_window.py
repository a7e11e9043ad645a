"""One delivery while messages of it are left to hand out."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from copy import copy
from itertools import compress
from typing import NamedTuple, Protocol

from partq.client.consume.ack_target import AckTarget
from partq.client.consume.deliveries import Batch, Delivery
from partq.client.consume.offsets import delivered_offsets, ranges_of
from partq.core.model import SLOT_COUNT
from partq.wire import batch as wire
from partq.wire.frames import Deliver, Range

_INVERSE = bytes((1, 0)) + bytes(254)
"""For `bytes.translate`: what is 0 becomes 1, all else 0."""


class FreedCredit(NamedTuple):
    """What a client has room for again."""

    message_count: int
    batch_bytes: int
    """Of deliveries that have nothing left to take."""


class _KeptBytes:
    """What the parts of one delivery keep together: the last that is done gives it back."""

    __slots__ = ("parts", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.parts = 1


class WindowOwner(AckTarget, Protocol):
    """The assignment that a delivery belongs to."""

    waits: int
    """Above 0: nothing is handed out."""
    set_aside: "list[DeliveredWindow]"
    """Windows whose turn came meanwhile."""

    def hold_back(self, window: "DeliveredWindow") -> None:
        """Take the messages out of a window whose slots are held up."""


class AskedSlots:
    """The slots that a broker asks back."""

    def __init__(self, lanes: Iterable[tuple[int, int]]) -> None:
        self._is_asked = bytearray(SLOT_COUNT)
        for first, stop in lanes:
            self._is_asked[first:stop] = b"\x01" * (min(stop, SLOT_COUNT) - first)

    def __contains__(self, slot: object) -> bool:
        return isinstance(slot, int) and bool(self._is_asked[slot])

    def flags(self, slots: Iterable[int]) -> bytes:
        """Return a byte for each of some slots: 1 if it is asked back, else 0."""
        return bytes(map(self._is_asked.__getitem__, slots))


class DeliveredWindow:
    """One delivery: decoded when its first message is taken."""

    __slots__ = (
        "_batch",
        "_causes",
        "_end",
        "_frame",
        "_is_freed",
        "_keeps_slots",
        "_kept_bytes",
        "_offsets",
        "_slots",
        "_taken",
        "_told",
        "assigned",
        "held_up_changes",
        "is_in_turn",
        "payload",
    )

    def __init__(
        self,
        assigned: WindowOwner,
        frame: Deliver,
        payload: bytes,
        *,
        is_in_turn: bool,
        keeps_slots: bool = False,
    ) -> None:
        self.assigned = assigned
        self.is_in_turn = is_in_turn
        """Whether it follows what came before it; else it is of messages that were nacked."""
        self._frame = frame
        self.payload = payload
        """The stored batch, while messages of it are left to take."""
        self._kept_bytes = _KeptBytes(frame.kept_bytes or len(payload))
        self._is_freed = False
        self._offsets = delivered_offsets(frame)
        self._causes = frame.causes
        self._keeps_slots = keeps_slots
        """Whether what was taken of it may be asked back, too, as long as it is held here."""
        self._slots: Sequence[int] | None = None
        """Of all messages of the stored batch, once they were read."""
        self._batch: Batch | None = None
        self._taken = self._told = 0
        self._end = len(self._offsets)
        self.held_up_changes = -1
        """For its owner: which slots were held up when it was last looked at."""

    @property
    def is_done(self) -> bool:
        """Whether every message was taken or dropped."""
        return self._taken >= self._end

    @property
    def left(self) -> int:
        """How many messages were neither taken nor dropped."""
        return self._end - self._taken

    @property
    def next_offset(self) -> int:
        """The offset of the first message that was not taken."""
        return self._offsets[self._taken]

    @property
    def begun(self) -> Range | None:
        """From the first message to the last that was taken; None: none was."""
        return (self._offsets[0], self._offsets[self._taken - 1] + 1) if self._taken else None

    @property
    def is_missing(self) -> bool:
        """Whether it came without its bytes, and they were not kept."""
        return not self.payload

    @property
    def first_offset(self) -> int:
        """The offset of the first message of its stored batch."""
        return self._frame.first_offset

    @property
    def stop(self) -> int:
        """The offset behind its last message."""
        return self._frame.stop

    @property
    def delivery(self) -> int:
        """The number of its delivery."""
        return self._frame.delivery

    def freed_bytes(self) -> int:
        """Return the size of the delivery, once, when no message of it is left to take; else 0.

        Of one that was split, the last part returns it.
        """
        if self._is_freed or not self.is_done:
            return 0
        self._is_freed = True
        self._kept_bytes.parts -= 1
        return 0 if self._kept_bytes.parts else self._kept_bytes.size_bytes

    def ranges(self) -> list[Range]:
        """Return the offsets of all its messages, those taken before included."""
        return ranges_of(self._offsets)

    def pop_begun(self) -> list[Range]:
        """Return which messages were taken since this was asked for last."""
        first, self._told = self._told, self._taken
        return ranges_of(self._offsets[first : self._taken])

    def pass_over(self) -> tuple[list[Range], int]:
        """Take every message that is left, unread; return which those are, and how many."""
        first, self._taken = self._taken, self._end
        self.payload = b""
        if self._frame.skip:
            return [(self._offsets[first], self._offsets[self._end - 1] + 1)], self._end - first
        return ranges_of(self._offsets[first : self._end]), self._end - first

    def take_one(self) -> Delivery:
        """Hand out the next message; raises `UndecodableError`."""
        batch = self._decoded()
        self._taken += 1
        if self._taken == self._end:
            self.payload = b""
        return Delivery(batch, self._taken - 1)

    def take_all(self) -> Batch:
        """Hand out every message that is left, at least one; raises `UndecodableError`."""
        batch = self._decoded()
        first, self._taken = self._taken, self._end
        self.payload = b""
        if not first and self._end == len(batch):
            return batch
        return batch.part(slice(first, self._end))

    def forget_from(self, offset: int) -> int:
        """Forget the messages from `offset` on that were not taken; return how many."""
        if self.is_done:
            return 0
        before = self._end
        self._end = max(self._taken, bisect_left(self._offsets, offset, hi=before))
        if self._end == self._taken:
            self.payload = b""
        return before - self._end

    def forget_slots(self, asked: AskedSlots) -> list[int]:
        """Forget the messages of some slots that were not taken; return their offsets.

        Raises:
            BadBatchError, IndexError: the stored batch is broken, or has no such messages; nothing
                was forgotten.
        """
        if self.is_done:
            return []
        flags = self._flags_of_left(asked.flags)
        if 1 not in flags:
            return []
        offsets = list(compress(self._offsets[self._taken : self._end], flags))
        self._remove(flags)
        return offsets

    def split_slots(self, slots: Collection[int]) -> "dict[int, DeliveredWindow]":
        """Take the messages of some slots out that were not taken; return a window for each slot.

        Raises:
            BadBatchError, IndexError: the stored batch is broken, or has no such messages; nothing
                was changed.
        """
        if self.is_done:
            return {}
        flags = self._flags_of_left(lambda each: bytes(map(slots.__contains__, each)))
        if 1 not in flags:
            return {}
        all_slots, first = self._read_slots(), self._frame.first_offset
        places: dict[int, list[int]] = {}
        for at in compress(range(self._taken, self._end), flags):
            places.setdefault(all_slots[self._offsets[at] - first], []).append(at)
        parts = {slot: self._part(each) for slot, each in places.items()}
        self._remove(flags)
        return parts

    def _flags_of_left(self, flags: Callable[[Iterable[int]], bytes]) -> bytes:
        """Return what `flags` says of the slots of the messages that were not taken."""
        slots, first = self._read_slots(), self._frame.first_offset
        left = self._offsets[self._taken : self._end]
        if isinstance(left, range):
            return flags(slots[left.start - first : left.stop - first])
        return flags([slots[offset - first] for offset in left])

    def _part(self, places: list[int]) -> "DeliveredWindow":
        """Return a window of the messages at some places, none of which was taken."""
        part = copy(self)
        self._kept_bytes.parts += 1
        part._select(places)
        part._taken = part._told = 0
        return part

    def _remove(self, flags: bytes) -> None:
        """Forget those of the messages that were not taken whose byte is 1."""
        kept = compress(range(self._taken, self._end), flags.translate(_INVERSE))
        self._select([*range(self._taken), *kept])
        if self._end == self._taken:
            self.payload = b""

    def _select(self, places: list[int]) -> None:
        self._offsets = [self._offsets[at] for at in places]
        if self._causes:
            self._causes = bytes([self._causes[at] for at in places])
        if self._batch is not None:
            self._batch = self._batch.only(places)
        self._end = len(places)

    def _read_slots(self) -> Sequence[int]:
        """Return the slots of all messages of the stored batch."""
        if self._slots is None:
            self._slots = wire.read_slots(self.payload, wire.read_header(self.payload))
        return self._slots

    def _decoded(self) -> Batch:
        if self._batch is None:
            frame, offsets = self._frame, self._offsets
            first = frame.first_offset
            if isinstance(offsets, range):
                messages = wire.decode(self.payload, offsets.start - first, offsets.stop - first)
            elif frame.skip:
                messages = wire.decode(self.payload, frame.start - first, frame.stop - first)
                messages = [messages[offset - frame.start] for offset in offsets]
            else:
                places = [(start - first, stop - first) for start, stop in ranges_of(offsets)]
                messages = wire.decode_some(self.payload, places)
            slots = self._read_slots() if self._keeps_slots else None
            self._batch = Batch(self.assigned, frame, messages, offsets, self._causes, slots)
        return self._batch


def forget_windows(windows: Iterable[DeliveredWindow], offset: int) -> FreedCredit:
    """Forget what was not taken of windows, from `offset` on; return the room that it had."""
    messages = size = 0
    for window in windows:
        messages += window.forget_from(offset)
        size += window.freed_bytes()
    return FreedCredit(messages, size)
