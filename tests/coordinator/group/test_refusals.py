"""Who asks to be let in and may not: told, written down for the brokers, and forgotten."""

from partq.coordinator.group.refusals import FORGET_S, MAX_KNOWN_REFUSED, Refusals
from partq.coordinator.ports import BindRefusal
from partq.core.group.records import RefusedJoin
from partq.core.model import MemberId
from partq.testing import eventually
from tests.coordinator.fake_brokers import GROUP
from tests.coordinator.timing import Clock

WRONG = BindRefusal("pod a of shop (app=x) does not match app=y")
STARTING = BindRefusal("pod a of shop is not Ready", told_after_s=60)


def review(refusals, refusal=WRONG, listed=()):
    return refusals.review(listed, lambda member, address: refusal)


def test_what_passes_by_itself_is_told_late():
    clock = Clock()
    refusals = Refusals(clock)
    refusals.note("m", "10.0.0.7", STARTING)
    assert review(refusals, STARTING) == {"m": RefusedJoin("10.0.0.7", STARTING.text)}
    assert refusals.lasting() == {}
    for _ in range(7):
        clock.skipped_s += 10
        refusals.note("m", "10.0.0.7", STARTING)
    assert refusals.lasting() == {"m": STARTING.text}
    assert review(refusals, WRONG)["m"].reason == WRONG.text, "another reason at the next look"
    assert refusals.lasting() == {"m": WRONG.text}


def test_a_refusal_is_over():
    clock = Clock()
    refusals = Refusals(clock)
    for listed, refusal, later_s in (({"m"}, WRONG, 0), ((), None, 0), ((), WRONG, FORGET_S + 1)):
        refusals.note("m", "10.0.0.7", WRONG)
        assert refusals.lasting() == {"m": WRONG.text}
        clock.skipped_s += later_s
        assert review(refusals, refusal, listed) == {}
        assert refusals.lasting() == {}


def test_the_last_that_asked_are_known():
    refusals = Refusals(Clock())
    for number in range(MAX_KNOWN_REFUSED + 5):
        refusals.note(f"m-{number}", "10.0.0.7", WRONG)
        refusals.note("m-0", "10.0.0.7", WRONG)
    assert len(review(refusals)) == MAX_KNOWN_REFUSED
    assert {"m-0", f"m-{MAX_KNOWN_REFUSED + 4}"} <= refusals.lasting().keys()
    assert "m-1" not in refusals.lasting()


async def test_brokers_read_what_the_last_look_found(system):
    """Also of what a coordinator before this one wrote."""
    system.store.refused = {MemberId("of-the-last"): RefusedJoin("10.0.0.1", "gone")}
    async with system.running() as coordinator:
        await eventually(lambda: not system.store.refused)
        await eventually(lambda: GROUP in coordinator._groups)
        member_list = coordinator._groups[GROUP].worker.member_list
        await member_list.admit(MemberId("stranger"), "10.0.0.9")
        await eventually(lambda: MemberId("stranger") in system.store.refused)
        address, reason, is_final = system.store.refused[MemberId("stranger")]
        assert is_final
        assert (address, member_list.refused) == ("10.0.0.9", {"stranger": reason})
        assert "asks from 10.0.0.9" in reason
