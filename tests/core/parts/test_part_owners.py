"""Parts of a partition: which member has which, and which slots are in each."""

import pytest

from partq.core.model import SLOT_COUNT
from partq.core.parts.part_id import slots_of
from partq.core.parts.part_owners import NOBODY, PartMove, PartOwners
from partq.core.parts.part_slots import part_table

ODD = (range(5, 18), range(100, 107))


def test_nobody_has_parts_at_first():
    parts = PartOwners.none(4)
    assert parts.count == 4
    assert [parts.owner(part) for part in range(4)] == [None] * 4


def test_moves_change_owners_and_drop_members_without_a_part():
    parts = PartOwners.none(3).moved([PartMove(0, None, 7, "b"), PartMove(2, None, 8, "a")])
    assert (parts.members, parts.of, parts.attempts) == (("a", "b"), (1, NOBODY, 0), (7, 0, 8))
    assert parts.of_member("b") == (0,)
    parts = parts.moved([PartMove(0, "b", 9, "a"), PartMove(2, "a", 10, None)])
    assert (parts.members, parts.of, parts.attempts) == (("a",), (0, NOBODY, NOBODY), (9, 0, 10))


@pytest.mark.parametrize("slots", [(range(SLOT_COUNT),), (range(4096, 8192),), ODD])
def test_every_slot_has_a_part(slots):
    table = part_table(slots, 4)
    assert len(table) == SLOT_COUNT
    for part in range(4):
        assert {table[slot] for each in slots_of(slots, part, 4) for slot in each} == {part}
