"""What keeps messages of a partition from a group, the worst first."""

import pytest

from partq.core.partition_problems import ProblemKind, problems_of

FINE = {"is_served": True, "member": "m", "state": "Ready"}


@pytest.mark.parametrize(
    ("changes", "texts"),
    [
        ({}, []),
        ({"blocked": "no room"}, ["delivers nothing: no room"]),
        ({"is_served": False}, ["no broker or no Redis answers"]),
        ({"member": "", "state": "Unassigned"}, ["no member"]),
        ({"member": "", "state": "Ready"}, []),  # of a group whose members have all partitions
        ({"state": "Unbound"}, ["member not connected"]),
        ({"state": "Paused"}, ["in a handoff"]),
        ({"is_withheld": True}, ["paused by its application: m has called pause"]),
        ({"gated_by": "1.0: 3 messages"}, ["waits for older messages: 1.0: 3 messages"]),
        (
            {"parked": "no queue", "dead_letters": 2},
            ["2 dead letters wait for the dead-letter queue, and deliveries continue: no queue"],
        ),
        (
            {"parked": "a", "dead_letters": 1, "is_withheld": True, "state": "Paused"},
            [
                "in a handoff",
                "paused by its application: m has called pause",
                "1 dead letter waits for the dead-letter queue, and deliveries continue: a",
            ],
        ),
    ],
)
def test_each_problem_has_its_words(changes, texts):
    assert [each.text for each in problems_of(**FINE | changes)] == texts


def test_all_at_once_are_in_the_order_of_the_kinds():
    every = {
        "blocked": "a",
        "is_served": False,
        "is_withheld": True,
        "parked": "b",
        "gated_by": "c",
        "stands_still": "d",
        "blocked_keys": 1,
    }
    kinds = [each.kind for each in problems_of(**FINE | every | {"state": "Unbound"})]
    assert kinds == [kind for kind in ProblemKind if kind not in {"unassigned", "paused"}]
