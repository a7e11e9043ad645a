"""A partition in which each key is in order: a group of order Key.

Messages come in any order of offsets, those of a slot in their order. What is given back blocks
its slot at the broker, which asks the rest of that slot back: this is the only way in which
something that has not begun goes back while the flow lives. Were it given back unasked, messages of
the same slot that are on their way would be handed out before it.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable

from partq.client.consume.assignment.acked_messages import AckedMessages
from partq.client.consume.assignment.assigned_partition import AssignedPartition, PartitionHolder
from partq.client.consume.assignment.delivered_window import (
    AskedSlots,
    DeliveredWindow,
    FreedCredit,
    forget_windows,
)
from partq.client.consume.offsets import ranges_of
from partq.client.hooks.serializers import ValueDeserializer
from partq.core.model import SLOT_COUNT, PartitionId
from partq.core.ranges import Ranges
from partq.errors import BadBatchError, BadRequestError
from partq.wire.frames import AskBack, Deliver, Frame, Range, Returned


class KeyedPartition(AssignedPartition):
    """A partition of which any messages may be in flight, waiting or open, each key in order."""

    def __init__(
        self,
        holder: PartitionHolder,
        partition: PartitionId,
        token: tuple[int, int],
        cursor: int,
        value_deserializer: ValueDeserializer | None = None,
    ) -> None:
        super().__init__(holder, partition, token, cursor, value_deserializer)
        self._windows: list[DeliveredWindow] = []
        self._unfinished = Ranges()
        """What came, and was neither acknowledged nor given back since."""
        self._acked = AckedMessages()
        self._nacks: Counter[int] = Counter()
        """Slot → nacks of its messages without an answer."""
        self._held_back: dict[int, list[DeliveredWindow]] = {}
        """What came of these slots, and was to be handed out meanwhile."""
        self._held_up_changes = 0
        """Grows with each slot that begins to be held up."""

    # ---- what came ----

    def accept(self, frame: Deliver, payload: bytes) -> DeliveredWindow | None:
        """Take a delivery; return the window to hand out, None: there is nothing of it."""
        if self.is_ended:
            return None
        window = DeliveredWindow(self, frame, payload, is_in_turn=False, keeps_slots=True)
        if window.is_done:
            return None
        ranges = window.ranges()
        self._unfinished.add_all(ranges)
        self._acked.remove_all(ranges)
        self._delivered_end = max(self._delivered_end, frame.stop)
        self.delivery = max(self.delivery, frame.delivery)
        self._windows.append(window)
        return window

    @property
    def begun_upto(self) -> int:
        """The lowest offset that came or is to come, and was not handed out."""
        left = (window.next_offset for window in self._windows if not window.is_done)
        return min(left, default=self._delivered_end)

    @property
    def has_in_hand(self) -> bool:
        """Whether the application has begun something, and said nothing of it yet."""
        return self.in_hand_count > 0

    @property
    def in_hand_count(self) -> int:
        """How many messages the application has begun and said nothing of."""
        # What is buffered may be finished: an ack of a copy that was handed out before.
        in_all = self._unfinished.count(0, self._unfinished.stop)
        return max(0, in_all - self.buffered_count)

    @property
    def buffered_count(self) -> int:
        """How many messages came and were neither handed out nor dropped."""
        return sum(window.left for window in self._windows)

    def begun(self) -> list[Range]:
        """Return what was handed out since this was asked for last."""
        return [each for _, ranges in self.begun_copies() for each in ranges]

    def begun_copies(self) -> Iterable[tuple[int, list[Range]]]:
        """Return the same by number: another copy of a message may have come, and not begun."""
        found: dict[int, list[Range]] = {}
        for window in self._windows:
            found.setdefault(window.delivery, []).extend(window.pop_begun())
        self._windows = [window for window in self._windows if not window.is_done]
        return found.items()

    # ---- slots that wait for the answer to a nack ----

    @property
    def held_up(self) -> Collection[int]:
        """The slots of which nothing may be handed out, as a nack of theirs has no answer."""
        return self._nacks

    def hold_up(self, slots: Collection[int]) -> None:
        """Hand out nothing of some slots until as many calls of `let_go`.

        What is on its way may be behind the message that was given back.
        """
        if not all(slot in self._nacks for slot in slots):
            self._held_up_changes += 1
        self._nacks.update(slots)

    def let_go(self, slots: Collection[int]) -> list[DeliveredWindow]:
        """Note that a nack is answered; return what may be handed out again, in order.

        What the broker had asked back is gone from it.
        """
        windows: list[DeliveredWindow] = []
        for slot in slots:
            self._nacks[slot] -= 1
            if not self._nacks[slot]:
                del self._nacks[slot]
                windows += self._held_back.pop(slot, ())
        if self.store is not None:
            self.store.look_again()
        return windows

    def hold_back(self, window: DeliveredWindow) -> None:
        """Take the messages out of a window whose slots are held up."""
        if window.held_up_changes == self._held_up_changes:
            return
        window.held_up_changes = self._held_up_changes
        try:
            parts = window.split_slots(self._nacks)
        except (BadBatchError, IndexError):
            return  # it is given back as undecodable in its turn, and not handed out
        for slot, part in parts.items():
            self._held_back.setdefault(slot, []).append(part)
            self._windows.append(part)
        window.freed_bytes()  # where nothing of it is left: its parts have all of its room

    # ---- what is given back ----

    def ask_back(self, asked: AskBack) -> tuple[Returned, FreedCredit]:
        """Forget what has not begun of some slots; return the answer, and the room that it had."""
        offsets, freed = self._forget_slots(asked.lanes)
        returned = Returned(*self.partition, *self.token, asked.notice, ranges_of(offsets))
        return returned, freed

    def release(self) -> tuple[Frame | None, FreedCredit]:
        """Give back nothing in a pause: the broker asks for it."""
        return None, FreedCredit(0, 0)

    def release_last(self) -> Frame | None:
        """Give back what has not begun before the connection is closed."""
        offsets, _ = self._forget_slots([(0, SLOT_COUNT)])
        if not offsets:
            return None
        return Returned(*self.partition, *self.token, 0, ranges_of(offsets))

    def forget(self) -> FreedCredit:
        """Forget what has not begun; return the room that it had."""
        return forget_windows(self._windows, 0)

    def _forget_slots(self, lanes: list[tuple[int, int]]) -> tuple[list[int], FreedCredit]:
        """Forget what the application has not got of some slots; return its offsets, ascending."""
        asked = AskedSlots(lanes)
        offsets: list[int] = []
        size = 0
        for window in self._windows:
            try:
                offsets += window.forget_slots(asked)
            except (BadBatchError, IndexError):
                continue  # it is given back as undecodable in its turn, and not handed out
            size += window.freed_bytes()
        freed = FreedCredit(len(offsets), size)
        if self.store is not None:
            offsets += self.store.give_back(self, asked)
        offsets.sort()
        self._unfinished.remove_all(ranges_of(offsets))
        return offsets, freed

    # ---- what the application says ----

    def add_cumulative_ack(self, delivery: int, upto: int) -> asyncio.Future[None]:
        """Refuse an ack of all below an offset: others of it may be open.

        Raises:
            BadRequestError: always.
        """
        raise BadRequestError(
            f"ack_cumulative: {self}: the group's nack.order is Key, where messages of other keys "
            f"below offset {upto} may not be done yet; expected `ack` of each message or batch; "
            "nothing was acknowledged"
        )

    def note_refused(self, offset: int) -> None:
        """Note that the ack of a message was refused: the application still has it."""
        self._acked.remove(offset, offset + 1)
        self._unfinished.add(offset, offset + 1)

    def _note_acked(self, upto: int, ranges: list[Range]) -> int:
        count = self._note_nacked(ranges)
        self._acked.add(ranges)
        return count

    def _note_nacked(self, ranges: list[Range]) -> int:
        return self._unfinished.remove_all(ranges)

    def _are_acked(self, ranges: list[Range]) -> bool:
        return self._acked.has_all(ranges)
