"""Which part of its partition each slot is in."""

from partq.core.model import SLOT_COUNT
from partq.core.parts.part_id import slots_of
from partq.core.slot_table import SlotRanges


def part_table(slots: SlotRanges, parts: int) -> bytes:
    """Return the part of each of the 65,536 slots, of a partition that was made with `slots`.

    One that it was not made with is in part 0, so there is no message without a part.
    """
    table = bytearray(SLOT_COUNT)
    for part in range(1, parts):
        for each in slots_of(slots, part, parts):
            table[each.start : each.stop] = bytes([part]) * len(each)
    return bytes(table)
