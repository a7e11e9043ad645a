"""The operator dies in the middle of a handoff: either replica, both at once, the leader's pod."""

from collections.abc import Callable

import pytest

from e2e import manifests
from e2e.nodes import Nodes
from e2e.release import Release
from e2e.stage import Stage

pytestmark = pytest.mark.timeout(600)

LIMITS = {"delaySeconds": 5, "maxHandoffSeconds": 60}
"""A handoff may wait for a message being processed far longer than it is held here."""


def test_operators_die_in_the_middle_of_a_handoff(
    stage: Stage, release: Release, nodes: Nodes
) -> None:
    stage.open(arguments=manifests.CAN_BE_HELD, rebalance=LIMITS)
    leader, standby = release.operators()

    in_the_middle_of_a_handoff(stage, lambda: nodes.kill(leader))
    in_the_middle_of_a_handoff(stage, lambda: nodes.kill(standby))
    in_the_middle_of_a_handoff(stage, lambda: nodes.kill(leader, standby))
    in_the_middle_of_a_handoff(stage, lambda: release.remove(release.operators()[0]))

    stage.close()


def in_the_middle_of_a_handoff(stage: Stage, strike: Callable[[], None]) -> None:
    """Let a consumer leave while it processes a message, and `strike` before it can finish."""
    stage.scale(3)
    stage.await_shared(3)
    stage.hold()
    stage.scale(2)
    stage.eventually(lambda: stage.group_status()["phase"] == "Rebalancing", "a handoff under way")
    strike()
    stage.let_go()
    stage.await_shared(2)
    stage.await_traffic()
