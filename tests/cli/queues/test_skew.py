"""A skew is told from chance."""

import random

import pytest
from msgspec import convert

from partq.cli.queues.problems import crowded, skew_lines
from partq.core.layout import Layout
from partq.wire.calls.status import StatusAnswer


def counts_of(partitions, keys, messages, chance):
    """Publish messages, each of a key by chance; return how many each partition has."""
    layout, counts = Layout.first(partitions), {}
    for partition in layout.partitions():
        counts[str(partition)] = 0
    names = [f"customer-{number}" for number in range(keys)]
    for key in chance.choices(names, k=messages):
        counts[str(layout.partition_for(key))] += 1
    return counts


@pytest.mark.req("SOL-46")
def test_a_wide_range_of_keys_is_no_skew_and_few_keys_are_one():
    chance = random.Random(1)
    for partitions in (2, 4, 16, 64):
        counts = counts_of(partitions, 100 * partitions, 400 * partitions + 20_000, chance)
        assert crowded(counts) == [], partitions
    few = counts_of(16, 3, 20_000, chance)
    assert 1 <= len(crowded(few)) <= 3
    assert all(few[name] for name in crowded(few))


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        pytest.param({}, [], id="no partition"),
        pytest.param({"1.0": 10**6}, [], id="one partition"),
        pytest.param({"1.0": 999, "1.1": 0}, [], id="too few to say"),
        pytest.param({"1.0": 1000, "1.1": 0}, ["1.0"], id="all of them"),
        pytest.param({"1.0": 3000, "1.1": 1000}, [], id="three times the other"),
        pytest.param({"1.0": 3001, "1.1": 1000}, ["1.0"], id="and more"),
        pytest.param(
            {"1.0": 4000, "1.1": 10, "1.2": 5000, "1.3": 10, "1.4": 10}, ["1.2", "1.0"],
            id="two of five, the fullest first",
        ),
    ],
)  # fmt: skip
def test_who_is_crowded(counts, expected):
    assert crowded(counts) == expected


def test_a_partition_without_slots_is_no_skew():
    row = {"broker": "b", "broker_epoch": 1, "first": 0, "bytes": 0}
    partitions = {"1.0": {**row, "end": 10**6}, "2.0": {**row, "end": 10}, "2.1": {**row, "end": 9}}
    status = {
        "queue": "orders", "namespace": "default", "availability": "Available", "unavailable": [],
        "totals": {"partitions": 3, "messages": 0, "bytes": 0}, "groups": {},
        "store": {"version": "7", "appendonly": True, "appendfsync": "always"},
        "partitions": partitions,
    }  # fmt: skip
    assert len(skew_lines(convert(status, StatusAnswer))) == 1
    partitions["1.0"]["is_retired"] = True
    assert skew_lines(convert(status, StatusAnswer)) == []
