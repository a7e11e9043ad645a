"""The store's clock jumps while a coordinator waits: it waits as long as it would have."""

import pytest

from partq.core.group.records import HandoffRecord
from partq.core.model import PartitionId
from partq.testing import eventually
from tests.coordinator.timing import looks

JUMPS_S = pytest.mark.parametrize("jump_s", [-3600.0, -30.0, -1.0, 1.0, 30.0, 3600.0])
P0 = PartitionId(1, 0)


@pytest.mark.req("HND-11", "FAIL-13")
@JUMPS_S
async def test_a_drain_lasts_as_long_as_it_would_have(system, jump_s):
    system.clock.stop()
    system.begin("aabb", bound="ab", leaving="b", in_flight=1)
    async with system.running():
        await eventually(lambda: {index for index, _ in system.said("drain")} == {2, 3})
        system.store.ahead_s += jump_s
        system.clock.skipped_s += 2.9
        before = system.store.looks
        await eventually(lambda: system.store.looks > before + 3)
        assert system.said("commit") == []
        system.clock.skipped_s += 0.1
        await eventually(lambda: len(system.said("committed")) == 2)
    assert {forced for _, forced in system.said("committed")} == {"drain_timeout"}


@pytest.mark.req("FAIL-13")
async def test_a_drain_that_goes_on_after_the_clock_was_set_back_lasts_once(system):
    """The next coordinator finds a deadline of an hour ahead: it waits as long as is configured."""
    system.clock.stop()
    system.begin("aaaa", bound="ab")
    record = system.brokers.records[P0]
    record.pause, record.in_flight = 41, 1
    system.store.attempt = 41
    deadline_ms = system.store.now_ms() + 3_600_000
    system.store.handoffs[P0] = HandoffRecord("a", "b", 41, "Draining", deadline_ms)
    async with system.running():
        await eventually(lambda: (0, 41) in system.said("drain"))
        system.clock.skipped_s += 3.0
        await eventually(lambda: (0, "drain_timeout") in system.said("committed"))


@pytest.mark.req("SOL-41", "FAIL-13")
@JUMPS_S
async def test_a_lost_member_is_waited_for_as_long_as_it_would_have_been(system, jump_s):
    """Its brokers have no memory of the loss: what the store was told counts."""
    system.clock.stop()
    system.own("a", "a", "b", "b")
    system.brokers.bind("a")
    coordinator = system.coordinator()
    await looks(coordinator)
    assert system.store.members.keys() == {"a"}
    system.store.members["b"] = type(system.store.members["a"])(address="", lost_at_ms=None)
    await looks(coordinator)
    assert system.store.members["b"].lost_at_ms == system.store.now_ms()
    system.store.ahead_s += jump_s
    system.clock.skipped_s += 4.9
    await looks(coordinator)
    assert system.said("record") == []
    system.clock.skipped_s += 0.1
    await looks(coordinator)
    assert {index for index, _ in system.said("record")} == {2, 3}
    await coordinator.close()
