"""How ranges are packed into tasks, for any backlog."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.model import PartitionId
from partq.spark.read.division import divide
from partq.spark.read.offsets import Range
from partq.spark.read.packing import (
    BLIND_TASK_RECORDS,
    BLIND_TASKS,
    TASK_RECORDS,
    plan_tasks,
)

partitions = st.builds(PartitionId, st.integers(1, 3), st.integers(0, 12))
sizes = st.integers(0, 10**7) | st.integers(0, 5)
ranges = st.dictionaries(partitions, sizes, max_size=20).map(
    lambda backlog: [Range(each, 7, 7 + size) for each, size in sorted(backlog.items())]
)
maybe = st.none() | st.integers(1, 30)


def even(count, size=100):
    return [Range(PartitionId(1, index), 0, size) for index in range(count)]


def loads(tasks):
    return [sum(each.size for each in task.ranges) for task in tasks]


@given(ranges, maybe, maybe, maybe, st.none() | st.integers(10**6, 10**8))
def test_each_message_is_in_one_task_and_in_its_order(given, cores, at_least, at_most, most):
    tasks = plan_tasks(given, cores=cores, at_least=at_least, at_most=at_most, most_records=most)
    pieces = [each for task in tasks for each in task.ranges]
    key = lambda each: (each.partition, each.start)  # noqa: E731  a sort key, twice
    assert sorted(pieces, key=key) == divide(given, at_least=at_least, most_records=most)
    assert all(task.ranges == tuple(sorted(task.ranges, key=key)) for task in tasks)
    assert all(task.ranges for task in tasks)


@given(ranges, maybe, maybe)
def test_there_are_never_more_or_less_tasks_than_asked_for(given, cores, count):
    total = sum(each.size for each in given)
    assert len(plan_tasks(given, cores=cores, at_least=count)) >= min(count or 0, total)
    filled = sum(1 for each in given if each.size)
    assert len(plan_tasks(given, cores=cores, at_most=count)) <= (count or filled)
    if count:
        assert len(plan_tasks(given, cores=cores, at_most=count)) == min(count, filled)


@given(ranges, st.integers(1, 30), st.integers(10**5, 10**8))
def test_no_task_has_more_messages_than_asked_for(given, cores, most):
    assert max(loads(plan_tasks(given, cores=cores, most_records=most)), default=0) <= most


@given(ranges, st.integers(1, 30))
def test_tasks_are_of_about_the_same_size(given, cores):
    found = loads(plan_tasks(given, cores=cores))
    # The fullest task was the emptiest one when its last range was added.
    assert not found or max(found) - min(found) <= max(each.size for each in given)


@pytest.mark.parametrize(
    ("cores", "partition_count", "size", "tasks"),
    [
        pytest.param(2, 64, 1000, 2, id="one task for each core"),
        pytest.param(16, 4, 1000, 4, id="no partition is cut for more cores"),
        pytest.param(4, 64, TASK_RECORDS // 8, 8, id="twice as many, before tasks get too large"),
        pytest.param(None, 64, 1000, BLIND_TASKS, id="cores not known: some"),
        pytest.param(None, 64, BLIND_TASK_RECORDS // 4, 16, id="cores not known: by size"),
        pytest.param(None, 64, BLIND_TASK_RECORDS, 64, id="cores not known: one per partition"),
    ],
)  # fmt: skip
def test_the_number_of_tasks_follows_the_cores_and_the_size(cores, partition_count, size, tasks):
    assert len(plan_tasks(even(partition_count, size), cores=cores)) == tasks
