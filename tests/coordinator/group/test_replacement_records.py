"""Whole sets pass on: the pair is on record first, whoever coordinates continues with it."""

import pytest

from partq.core.group.observation import MemberFact
from partq.core.model import PartitionId
from partq.errors import StoreUnavailableError
from partq.testing import eventually
from tests.coordinator.fake_brokers import GROUP

P0, P1 = PartitionId(1, 0), PartitionId(1, 1)


@pytest.fixture
def rollout(system):
    """Members a and b have two partitions each, c and d are to replace them, and a goes."""
    system.own("a", "a", "b", "b")
    for member in "abcd":
        system.brokers.bind(member)
    system.member_processes.known = {
        "a": MemberFact.IS_BEING_REPLACED,
        "b": MemberFact.EXISTS,
        "c": MemberFact.IS_REPLACEMENT,
        "d": MemberFact.IS_REPLACEMENT,
    }
    return system


def owners(system):
    return "".join(system.brokers.owners().values())


@pytest.mark.req("MEM-07")
async def test_a_pair_is_recorded_before_the_first_pause_and_until_all_has_passed(rollout):
    for record in rollout.brokers.records.values():
        record.in_flight = 1
    async with rollout.running():
        await eventually(lambda: len(rollout.said("drain")) >= 2)
        assert rollout.store.replacements == {"a": "c"}
        kinds = [entry[0] for entry in rollout.journal]
        assert kinds.index("pair") < kinds.index("record") < kinds.index("pause")
        rollout.brokers.records[P0].in_flight = 0
        await eventually(lambda: owners(rollout) == "cabb" and P0 not in rollout.store.handoffs)
        assert rollout.store.replacements == {"a": "c"}
        rollout.brokers.records[P1].in_flight = 0
        await eventually(lambda: owners(rollout) == "ccbb" and not rollout.store.replacements)


@pytest.mark.req("MEM-07")
async def test_the_next_coordinator_gives_the_rest_to_the_same_replacement(rollout):
    """The first has moved one of two partitions; of the other nothing is under way any more."""
    rollout.brokers.records[P1].in_flight = 1
    async with rollout.running():
        await eventually(lambda: owners(rollout) == "cabb" and P0 not in rollout.store.handoffs)
    second = rollout.brokers.records[P1]
    second.pause, second.closed, second.in_flight = None, rollout.store.attempt, 0
    async with rollout.running():
        await eventually(lambda: owners(rollout) == "ccbb" and not rollout.store.replacements)


@pytest.mark.req("MEM-07")
async def test_a_pair_without_any_handoff_is_followed(rollout):
    """The one before died right after it had written the pair."""
    rollout.store.replacements = {"a": "d"}
    async with rollout.running():
        await eventually(lambda: owners(rollout) == "ddbb" and not rollout.store.replacements)


async def test_without_a_record_of_the_pair_nothing_moves(rollout):
    rollout.store.fail_pairs = StoreUnavailableError("no answer")
    async with rollout.running():
        looks = rollout.store.looks
        await eventually(lambda: rollout.store.looks > looks + 3)
        assert rollout.said("record") == rollout.said("pause") == []
        rollout.store.fail_pairs = None
        await eventually(lambda: owners(rollout) == "ccbb")


@pytest.mark.req("MEM-04")
async def test_a_drain_ends_while_its_source_still_lives(system):
    """The group allows 600 s; the pod has two left, and then it is cut off in time."""
    system.clock.stop()
    system.store.groups[GROUP].spec["rebalance"] = {"maxHandoffSeconds": 600}
    system.begin("aabb", bound="ab", in_flight=1)
    system.member_processes.known = {"b": MemberFact.IS_TERMINATING}
    system.member_processes.left_ms = {"b": 2_000}
    async with system.running():
        await eventually(lambda: len({index for index, _ in system.said("drain")}) == 2)
        system.clock.skipped_s += 1.9
        drains = len(system.said("drain"))
        await eventually(lambda: len(system.said("drain")) > drains + 4)
        assert system.said("committed") == []
        system.clock.skipped_s += 0.1
        await eventually(lambda: len(system.said("committed")) == 2)
    assert {forced for _, forced in system.said("committed")} == {"drain_timeout"}
