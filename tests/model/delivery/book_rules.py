"""The rules of a book of lanes: what may be sent to whom, and what is taken back."""

from tests.model.delivery.partition_state import (
    ASK_BACK,
    MEMBERS,
    OPEN,
    Frame,
    Partition,
    replaced,
)


class BookRules:
    """The decisions of a broker for one partition, as functions of its state."""

    def __init__(self, lanes: str, mutant: str) -> None:
        below_seal, _, above = lanes.partition(".")
        self.lanes = tuple(map(int, below_seal + above))
        """The lane of each message."""
        self.sealed_at = len(below_seal)
        """Where the log ended when lane 0 left the partition."""
        self._mutant = mutant
        count = max(self.lanes, default=0) + 1
        self.offsets = [
            [offset for offset, each in enumerate(self.lanes) if each == lane]
            for lane in range(count)
        ]
        """The messages of each lane."""

    def held(self, partition: Partition, member: int, lane: int) -> list[int]:
        """Return the messages of a lane that a member holds."""
        holders = partition.book.holders
        return [offset for offset in self.offsets[lane] if holders[offset] == member]

    def next_open(self, partition: Partition, member: int, lane: int) -> int | None:
        """Return the lowest open message of a lane that the member's pointer has not passed."""
        book = partition.book
        pointer = book.pointers[self.pointer_of(member, lane)]
        for offset in self.offsets[lane]:
            if book.holders[offset] == OPEN and offset >= pointer:
                return offset
        return None

    def pointer_of(self, member: int, lane: int) -> int:
        """Return the index of the pointer of a member and a lane."""
        return (member - 1) * len(self.offsets) + lane

    def is_blocked(self, partition: Partition, member: int, lane: int) -> bool:
        """Return whether nothing of a lane may be sent to a member that owns it."""
        book = partition.book
        if book.parked[lane]:
            return True
        if book.uncounted[lane] and self._mutant != "count_not_stored":
            return True
        if book.draining[lane] not in (0, member) and self._mutant != "no_drain":
            return True
        return (member, lane) in book.owed and self._mutant != "answer_not_awaited"

    def end_drain(self, partition: Partition, lane: int) -> Partition:
        """End a drain when the former owner holds nothing of the lane, or owns it again."""
        former = partition.book.draining[lane]
        if former and (
            partition.record.owners[lane] == former or not self.held(partition, former, lane)
        ):
            return partition.with_book(draining=replaced(partition.book.draining, lane, 0))
        return partition

    def move_pointers_back(self, partition: Partition, lane: int) -> Partition:
        """Have all members look at a lane from its beginning, as something of it is open again."""
        if self._mutant == "pointer_not_moved_back":
            return partition
        pointers = list(partition.book.pointers)
        for member in MEMBERS:
            pointers[self.pointer_of(member, lane)] = 0
        return partition.with_book(pointers=tuple(pointers))

    def ask_back(self, partition: Partition, member: int, lane: int) -> Partition:
        """Ask a member for what it has not begun of a lane, unless it owes that answer already."""
        owed = partition.book.owed
        if (
            (member, lane) in owed
            or not self.held(partition, member, lane)
            or not partition.is_connected(member)
        ):
            return partition
        asked = partition.with_book(owed=owed | {(member, lane)})
        return send(asked, member, Frame(ASK_BACK, lane=lane))

    def take_back(
        self, partition: Partition, member: int, lane: int, *, is_processing: bool
    ) -> Partition:
        """Open what a member holds of a lane; the lowest message of it counts.

        `is_processing`: the member keeps its flow, and may be at work on what is taken.
        """
        taken = self.held(partition, member, lane)
        if not taken:
            return partition
        book = partition.book
        holders, copies = book.holders, book.copies
        for offset in taken:
            holders = replaced(holders, offset, OPEN)
            if is_processing:
                copies = replaced(copies, offset, copies[offset] + 1)
        opened = partition.with_book(holders=holders, copies=copies)
        return self.count(opened, taken[0], lane)

    def count(self, partition: Partition, offset: int, lane: int) -> Partition:
        """Count that a message will be redelivered; its lane waits until that is stored."""
        book = partition.book
        counted = partition.with_book(
            counts=replaced(book.counts, offset, book.counts[offset] + 1),
            uncounted=replaced(book.uncounted, lane, True),
            is_dirty=True,
        )
        return self.move_pointers_back(counted, lane)

    def park(self, partition: Partition, lane: int) -> Partition:
        """Let a lane wait for the delay of a retry."""
        parked = partition.with_book(parked=replaced(partition.book.parked, lane, True))
        return parked._replace(is_due=replaced(parked.is_due, lane, False))


def send(partition: Partition, member: int, frame: Frame) -> Partition:
    """Send a frame to a member, if it is connected."""
    if not partition.is_connected(member):
        return partition
    down = partition.links[member - 1].down
    return partition.with_link(member, down=(*down, frame))
