"""The oracle of isolation: what excuses that a member loses a partition, and for how long."""

from dataclasses import dataclass, field

import pytest

from partq.lab.simulate.oracle.facts import GroupPartitionFacts, LogFacts
from partq.lab.simulate.oracle.fault_windows import FaultWindows
from partq.lab.simulate.oracle.isolation import Isolation

MEMBER, BROKER = "pod-1", "broker-0"
TOKEN = (7, 20)
SETTLED_S = 4.0


@dataclass
class _Case:
    """A partition that a member is given, and an oracle that looks on."""

    at: float = 10.0
    found: list[str] = field(default_factory=list)

    def __post_init__(self):
        log = LogFacts("1.0", b"meta", b"log", broker_epoch=TOKEN[0])
        self.facts = GroupPartitionFacts(
            "1.0/second", log, "second", b"cursor", set(), is_there=True
        )
        self.facts.top_epoch = TOKEN[1]
        self.troubles = FaultWindows(lambda: self.at)
        self.isolation = Isolation(
            self.troubles, lambda _, text: self.found.append(text), lambda: self.at
        )

    def give(self):
        self.isolation.assigned(self.facts, (MEMBER, BROKER), TOKEN)

    def take(self):
        self.isolation.revoked(self.facts, (MEMBER, BROKER), TOKEN)


def test_a_member_that_nothing_concerns_keeps_its_partition():
    case = _Case()
    case.give()
    case.at += 60.0
    case.take()
    assert case.found == ["1.0/second: broker-0 takes it from pod-1, and nothing had happened"]


@pytest.mark.parametrize("given_after_s", [-1.0, 0.3])
def test_a_group_that_is_removed_ends_also_what_was_given_by_then(given_after_s):
    # Brokers hear of it at their next look; one that claims meanwhile binds the members once more.
    case = _Case()
    times = {"disturb": case.at, "give": case.at + given_after_s}
    for name, case.at in sorted(times.items(), key=lambda each: each[1]):
        case.give() if name == "give" else case.isolation.disturb(case.facts.name, SETTLED_S)
    case.at += 0.1
    case.take()
    assert case.found == []


def test_what_is_given_after_that_time_is_kept():
    case = _Case()
    case.isolation.disturb(case.facts.name, SETTLED_S)
    case.at += SETTLED_S + 0.1
    case.give()
    case.take()
    assert len(case.found) == 1


@pytest.mark.parametrize("has_left", [True, False])
def test_what_a_target_of_dead_letters_had_stopped_may_come_once_they_have_left(has_left):
    case = _Case()
    case.give()
    case.isolation.waits("life")
    stored_at, case.at = case.at, case.at + 7.0
    if has_left:
        case.isolation.go_on(case.facts.name)
    case.at += 0.2
    case.isolation.handed(case.facts.name, case.facts.name, MEMBER, "life", TOKEN, stored_at)
    assert case.found == ([] if has_left else ["1.0/second: pod-1 gets a message after 7.200 s"])


@pytest.mark.parametrize("was_frozen", [True, False])
def test_a_nack_counts_from_when_a_broker_that_stood_still_hears_of_it(was_frozen):
    case = _Case()
    case.give()
    case.isolation.waits("life")
    stored_at = case.at
    if was_frozen:
        case.troubles.hit(BROKER, 1.0)
    case.isolation.hold_up("key", 2.0)
    case.at += 3.1
    case.isolation.handed(case.facts.name, "key", MEMBER, "life", TOKEN, stored_at)
    assert case.found == ([] if was_frozen else ["1.0/second: pod-1 gets a message after 0.600 s"])
