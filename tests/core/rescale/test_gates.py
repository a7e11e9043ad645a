"""When a gate may open, and what people are told that it waits for."""

import pytest

from partq.core.model import PartitionId
from partq.core.rescale.gates import GroupProgress, PredecessorView, find_holds, has_passed
from partq.core.rescale.resets import new_reset_id

NOW = 1_700_000_000_000
OLD = PartitionId(1, 0)


def view(sealed_at=10, trimmed=10, **groups):
    return PredecessorView(sealed_at, trimmed, groups)


@pytest.mark.parametrize(("predecessor", "passed"), [
    pytest.param(view(g=GroupProgress(10, True)), True, id="at the seal"),
    pytest.param(view(g=GroupProgress(12, True)), True, id="beyond it: the partition keeps slots"),
    pytest.param(view(g=GroupProgress(9, True)), False, id="a message is left"),
    pytest.param(view(None, g=GroupProgress(99, True)), False, id="not sealed: more may come"),
    pytest.param(view(0, g=GroupProgress(0, False)), False, id="sealed empty, gate closed"),
    pytest.param(view(), False, id="the group is not there yet"),
    pytest.param(view(g=GroupProgress(10, True, 3)), True, id="dead letters wait"),
])  # fmt: skip
def test_a_group_has_passed(predecessor, passed):
    assert has_passed(predecessor, "g") is passed


@pytest.mark.parametrize(("predecessor", "text"), [
    pytest.param(view(g=GroupProgress(9, True, member="m")),
                 "1 message before offset 10, at member m", id="messages are left"),
    pytest.param(view(g=GroupProgress(7, True)), "3 messages before offset 10, at no member",
                 id="nobody reads them"),
    pytest.param(view(g=GroupProgress(9, True, blocked=(3, 7))),
                 "at no member, where 2 keys are blocked until `partq keys release`", id="blocked"),
    pytest.param(view(g=GroupProgress(10, True, 3, quarantined=(7,))),
                 "3 dead letters of keys in quarantine on the way", id="letters of a quarantine"),
    pytest.param(view(), "10 messages before offset 10, at no member", id="no cursor yet"),
    pytest.param(view(0, g=GroupProgress(0, False)), "which waits for its own predecessors",
                 id="its gate is closed"),
    pytest.param(view(None, g=GroupProgress(9, True)), "whose broker has not sealed it yet",
                 id="not sealed"),
    pytest.param(view(g=GroupProgress(10, True, reset="r7")), "", id="passed, not reset"),
])  # fmt: skip
def test_what_holds_a_gate(predecessor, text):
    passed = PartitionId(1, 1)
    holds = find_holds({OLD: predecessor, passed: view(g=GroupProgress(10, True))}, "g")
    assert [each.predecessor for each in holds] == ([OLD] if text else [])
    assert "".join(each.text for each in holds).endswith(text)


def test_a_reset_holds_a_gate_until_it_has_reached_the_predecessors():
    reset = new_reset_id(NOW, "r7", 2)
    reached = view(g=GroupProgress(10, True, reset=reset))
    for before in ("", new_reset_id(NOW, "r8", 2)):
        (hold,) = find_holds({OLD: view(g=GroupProgress(10, True, reset=before))}, "g", reset)
        assert hold.text == "1.0, which the reset of the group has not reached yet"
    assert find_holds({OLD: reached}, "g", reset) == ()
    assert find_holds({OLD: reached}, "g", "another")
    assert find_holds({OLD: view(g=GroupProgress(0, True, reset=reset))}, "g", reset)


def test_a_gate_without_predecessors_opens():
    assert find_holds({}, "g") == ()
