"""What people are shown of a queue while a broker does not answer the coordinator."""

from partq.coordinator.coordinator import SHOW_PATIENCE_S, Coordinator
from partq.core.group.membership import MemberState
from tests.coordinator.fake_brokers import GROUP
from tests.coordinator.timing import looks


class Shown:
    """A coordinator that is looked with by hand, and what it shows."""

    def __init__(self, system):
        system.clock.stop()
        system.own("a", "a", "b", "b")
        system.brokers.bind("a")
        system.brokers.bind("b")
        self.system = system
        self.views = []
        self.coordinator = Coordinator(
            namespace="ns",
            queue="orders",
            store=system.store.ports(),
            brokers=system.brokers,
            member_processes=system.member_processes,
            clock=system.clock,
            on_view=self.views.append,
        )

    async def look(self, *, later_s=0.0):
        """Look twice: the first starts the calls, and an answer may come with the second."""
        self.system.clock.skipped_s += later_s
        await looks(self.coordinator, 2)
        return self.views[-1]


async def test_a_broker_that_misses_looks_is_shown_as_it_was(system):
    shown = Shown(system)
    before = await shown.look()
    assert len(before.owners) == 4
    assert before.groups[GROUP].members == {"a": MemberState.BOUND, "b": MemberState.BOUND}
    system.brokers.silent = {"b-1"}
    for _ in range(3):
        assert await shown.look(later_s=SHOW_PATIENCE_S / 4) == before
    system.brokers.silent = set()
    assert await shown.look(later_s=1) == before
    await shown.coordinator.close()


async def test_one_that_stays_silent_is_shown_so(system):
    shown = Shown(system)
    await shown.look()
    system.brokers.silent = {"b-1"}
    await shown.look(later_s=1)
    view = await shown.look(later_s=SHOW_PATIENCE_S)
    assert view.brokers == {"b-0": True, "b-1": False}
    assert len(view.owners) == 2
    assert not view.groups[GROUP].is_complete
    await shown.coordinator.close()


async def test_one_whose_lease_is_over_is_shown_at_once(system):
    shown = Shown(system)
    await shown.look()
    system.brokers.silent = {"b-1"}
    del system.store.leases["b-1"]
    view = await shown.look(later_s=1)
    assert view.brokers == {"b-0": True}
    assert len(view.owners) == 2
    assert view.groups[GROUP].is_complete
    await shown.coordinator.close()


async def test_a_broker_that_starts_is_no_trouble_of_the_others(system):
    shown = Shown(system)
    system.brokers.silent = {"b-2"}
    before = await shown.look()
    lease = system.store.leases["b-0"]
    system.store.leases["b-2"] = replace_lease(lease, url="b-2")
    assert await shown.look(later_s=1) == before
    await shown.coordinator.close()


def replace_lease(lease, **changes):
    return type(lease)(**{**vars(lease), **changes})
