"""Parts of partitions: names, order, and the slots that they have."""

import copy
import pickle
from itertools import chain

import pytest

from partq.core.model import PartitionId
from partq.core.parts.part_id import PartId, parse_seat, partition_of, slots_of

PART = PartId.of(PartitionId(1, 3), 5)


def test_a_part_has_a_name_of_its_own():
    assert (str(PART), repr(PART)) == ("1.3/5", "PartId(1, 3, 5)")
    assert PartId.parse("1.3/5") == PART == parse_seat("1.3/5")
    assert parse_seat("1.3") == PART.partition == partition_of(PART) == partition_of(PART.partition)
    assert PART.partition != PART


@pytest.mark.parametrize("text", ["1.3", "1.3/", "1.3/05", "1.3/100", "3/5", "1.3/5/6", ""])
def test_other_names_are_refused(text):
    with pytest.raises(ValueError, match="expected"):
        PartId.parse(text)


def test_a_part_is_not_read_as_a_partition():
    with pytest.raises(ValueError, match=r"GENERATION\.INDEX"):
        PartitionId.parse(str(PART))


def test_parts_sort_by_partition():
    parts = [PartId(1, 10, 0), PartId(1, 2, 11), PartId(2, 0, 0), PartId(1, 2, 3)]
    assert [*map(str, sorted(parts))] == ["1.2/3", "1.2/11", "1.10/0", "2.0/0"]


def test_copies_of_a_part_are_the_part():
    assert copy.deepcopy(PART) == pickle.loads(pickle.dumps(PART)) == PART
    assert type(copy.copy(PART)) is PartId


@pytest.mark.parametrize(
    "ranges",
    [(range(65_536),), (range(10, 17),), (range(5), range(9, 30), range(40, 41)), (range(3),), ()],
)
@pytest.mark.parametrize("parts", [1, 2, 16, 64])
def test_parts_cut_the_slots_into_equal_runs(ranges, parts):
    cut = [slots_of(ranges, part, parts) for part in range(parts)]
    assert [*chain.from_iterable(chain.from_iterable(cut))] == [*chain.from_iterable(ranges)]
    sizes = {sum(map(len, each)) for each in cut}
    assert max(sizes) - min(sizes) <= 1
