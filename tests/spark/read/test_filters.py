"""What filters leave of a read, for any ranges: all that Spark wants, and no more than it knows."""

import operator
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource as spark_api

from partq.client.log_reader import LogPosition
from partq.client.transport.positions import check_unit
from partq.core.model import PartitionId
from partq.spark.read.division import divide
from partq.spark.read.filters import Narrowing
from partq.spark.read.offsets import Range

KINDS = {
    "EqualTo": operator.eq,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "In": lambda column, values: column in values,
}
COLUMNS = {
    "partition": lambda partition, _: str(partition),
    "generation": lambda partition, _: partition.generation,
    "partition_index": lambda partition, _: partition.index,
    "offset": lambda _, offset: offset,
}
partitions = st.builds(PartitionId, st.integers(1, 3), st.integers(0, 11))
VALUES = {
    "partition": partitions.map(str),
    "generation": st.integers(0, 4),
    "partition_index": st.integers(-1, 12),
    "offset": st.integers(-1, 40),
}


@st.composite
def filters(draw):
    """Return (the filter, whether a message passes it)."""
    name, kind = draw(st.sampled_from(sorted(VALUES))), draw(st.sampled_from(sorted(KINDS)))
    one = VALUES[name]
    value = draw(st.lists(one, min_size=1, max_size=3).map(tuple) if kind == "In" else one)
    made = getattr(spark_api, kind)((name,), value)
    return made, lambda partition, offset: KINDS[kind](COLUMNS[name](partition, offset), value)


ranges = st.dictionaries(
    partitions, st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=5
).map(
    lambda found: [
        Range(partition, start, start + size, start_epoch=3, stop_epoch=9, most_epoch=9)
        for partition, (start, size) in sorted(found.items())
    ]
)


def messages(found):
    return [(each.partition, offset) for each in found for offset in range(each.start, each.stop)]


@pytest.mark.skipif(not hasattr(spark_api, "EqualTo"), reason="Spark 4.0 hands no filters over")
@given(ranges, st.lists(filters(), max_size=4), st.integers(1, 9))
def test_what_is_left_is_what_passes_the_filters_that_were_taken(whole, chosen, tasks):
    narrowing = Narrowing()
    passes = {id(made): holds for made, holds in chosen}
    refused = list(narrowing.accept([made for made, _ in chosen]))
    left = narrowing.narrow(whole, log=None)
    read = messages(divide(left, at_least=tasks))
    wanted = [m for m in messages(whole) if all(holds(*m) for holds in passes.values())]
    # Spark applies what was given back: nothing that it wants is missing, and all else is done.
    assert [m for m in read if all(passes[id(each)](*m) for each in refused)] == wanted
    assert len(read) == len(set(read))
    ends = {each.partition: (each.start, each.stop) for each in whole}
    for each in left:
        if each.size:
            start, stop = ends[each.partition]
            assert start <= each.start < each.stop <= stop
            # What is known of a boundary holds where it is, and nowhere else.
            assert each.start_epoch == (3 if each.start == start else 0)
            assert each.stop_epoch == (9 if each.stop == stop else 0)


@pytest.mark.skipif(not hasattr(spark_api, "EqualTo"), reason="Spark 4.0 hands no filters over")
@pytest.mark.parametrize(("kind", "year", "asked"), [
    ("GreaterThanOrEqual", 1960, {0, 10**14}),
    ("GreaterThanOrEqual", 1971, {0, 10**14}),
    ("LessThan", 1971, {0}),
    ("LessThan", 9999, {0, 10**14}),
])  # fmt: skip
def test_a_filter_may_name_a_time_at_which_nothing_can_have_been_stored(kind, year, asked):
    """Positions in a log are refused for such a time: it is usually in another unit."""
    partition, times = PartitionId(1, 0), set()

    def positions(where, partitions):
        check_unit("positions", where["at_ms"])
        times.add(where["at_ms"])
        return dict.fromkeys(partitions, LogPosition(partition, 0, 0, 0, 0))

    narrowing = Narrowing()
    value = datetime(year, 6, 1, tzinfo=UTC)
    assert list(narrowing.accept([getattr(spark_api, kind)(("publish_time",), value)]))
    narrowing.narrow([Range(partition, 0, 5)], SimpleNamespace(positions=positions))
    assert times <= asked
