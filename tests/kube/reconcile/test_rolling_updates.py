"""How often partitions move while a Deployment is rolled out, with surge and without, and back."""

import pytest

from partq.kube.watch.rollout import MARGIN_S, NEWS_S
from tests.kube.played_group import GRACE_S, PlayedGroup

PARTITIONS = 12


@pytest.fixture
def group():
    return PlayedGroup(partitions=PARTITIONS)


def begin(group, size):
    """Let pods 0 to size-1 of the old template share all."""
    for number in range(size):
        group.pod(number)
    group.settle()
    assert sum(group.held().values()) == PARTITIONS
    assert set(group.held()) == set(range(size))
    group.moves.clear()


def replace(group, old, new, template, *, surge, dies_after=None, is_heard_late=False):
    """Replace one pod by another, as the controllers do; a coordinator may die at each look.

    `is_heard_late`: the process says that it leaves before the pod is known to end.
    """

    def end():
        if is_heard_late:
            group.leave(old)
            group.look()
            group.pass_time(NEWS_S / 2)
            group.look()
        group.end(old)

    if surge:
        group.pod(new, template)
        group.look(at_most=dies_after)
        end()
    else:
        end()
        group.look(at_most=dies_after)
        group.pod(new, template, connects=False, ready=False)
        group.pass_time(NEWS_S + 1)
        group.look(at_most=dies_after)
        group.pod(new, ready=True)
        group.connect(new)
    group.look(at_most=dies_after)
    group.settle()
    group.finish(old)
    group.settle()


def counts(group):
    """Return how often partitions have moved: (all, the one that moved most)."""
    return group.moves.total(), max(group.moves.values())


def is_even(group):
    return max(group.held().values()) - min(group.held().values()) <= 1


@pytest.mark.req("MEM-07")
@pytest.mark.parametrize("surge", [True, False], ids=["surge", "no surge"])
@pytest.mark.parametrize("is_heard_late", [True, False], ids=["heard late", "heard in time"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_each_partition_moves_once(group, size, is_heard_late, surge):
    begin(group, size)
    for number in range(size):
        replace(group, number, 10 + number, "new", surge=surge, is_heard_late=is_heard_late)
    assert counts(group) == (PARTITIONS, 1)
    assert set(group.held()) == set(range(10, 10 + size))
    assert is_even(group)


@pytest.mark.req("MEM-07")
@pytest.mark.parametrize("surge", [True, False], ids=["surge", "no surge"])
@pytest.mark.parametrize("dies_after", [0, 1, 2])
def test_a_set_whose_move_was_cut_short_goes_on_to_the_same_replacement(group, dies_after, surge):
    """All new pods are there from the start, so that another replacement could be taken."""
    begin(group, 3)
    if surge:
        for number in range(3):
            group.pod(10 + number, "new")
        for number in range(3):
            group.end(number)
            group.look(at_most=dies_after)
            group.settle()
            group.finish(number)
    else:
        for number in range(3):
            replace(group, number, 10 + number, "new", surge=False, dies_after=dies_after)
    assert counts(group) == (PARTITIONS, 1)
    assert is_even(group)


@pytest.mark.parametrize("surge", [2, 3])
def test_several_at_once(group, surge):
    begin(group, 5)
    for first in range(0, 5, surge):
        batch = range(first, min(5, first + surge))
        for number in batch:
            group.pod(10 + number, "new")
        for number in batch:
            group.end(number)
        group.settle()
        for number in batch:
            group.finish(number)
        group.settle()
    assert counts(group) == (PARTITIONS, 1)
    assert is_even(group)


@pytest.mark.req("MEM-07")
@pytest.mark.parametrize("surge", [True, False], ids=["surge", "no surge"])
@pytest.mark.parametrize("replaced", [1, 2, 3])
def test_after_a_rollback_a_partition_moves_once_more_at_most(group, replaced, surge):
    """The new pods are the old ones now: pods of the first template come back for them."""
    begin(group, 4)
    for number in range(replaced):
        replace(group, number, 10 + number, "new", surge=surge)
    moved = sum(count > 0 for count in group.moves.values())
    if surge:  # one newcomer stands by and has nothing yet
        group.pod(10 + replaced, "new")
        assert group.look() == []

    for number in range(replaced):
        replace(group, 10 + number, 20 + number, "old", surge=surge)
        assert 10 + replaced not in group.held(), "nothing goes to a pod that is about to go"
    if surge:
        group.end(10 + replaced)
        group.finish(10 + replaced)
    group.pass_time(2 * GRACE_S)
    group.settle()
    assert counts(group) == (2 * moved, 2)
    assert set(group.held()) == {*range(replaced, 4), *range(20, 20 + replaced)}


def test_a_rollback_while_a_set_moves_sends_the_rest_to_a_pod_that_stays(group):
    begin(group, 3)
    group.pod(10, "new")
    group.end(0)
    group.look(at_most=1)
    group.pod(20, "old")
    group.settle()
    group.finish(0)
    assert group.held()[20] == 3, "the rest of the set, in one"
    group.end(10)
    group.pass_time(GRACE_S - MARGIN_S)
    group.settle()
    group.finish(10)
    assert counts(group) == (5, 2)
    assert is_even(group)


@pytest.mark.req("MEM-07")
def test_a_replacement_that_is_late_is_waited_for_while_there_is_time(group):
    begin(group, 3)
    group.end(0)
    group.look()
    group.pod(10, "new", connects=False, ready=False)
    group.pass_time(GRACE_S - MARGIN_S - 0.1)
    assert group.look() == [], "it continues"
    group.pass_time(0.1)
    group.settle()
    assert set(group.held()) == {1, 2}, "the others take over while it can still hand over"
