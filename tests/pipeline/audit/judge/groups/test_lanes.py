"""What is judged of groups of order Key: each slot has its own order, and no other one."""

from array import array

from partq.pipeline.audit.judge.groups.lanes import LaneHighs, PublishedSlots


def published(*slots):
    found = PublishedSlots()
    for at, slot in enumerate(slots):
        found.add(at, array("H", [slot]).tobytes())
    return found


def test_a_slot_is_behind_what_was_delivered_of_it_alone():
    lanes = LaneHighs(published(7, 8, 7, 8))
    lanes.note(2, 3, "token")

    assert lanes.behind(0, 4, "token") == [0]
    assert lanes.behind(0, 4, "a later token") == []


def test_a_new_token_begins_with_nothing_delivered():
    lanes = LaneHighs(published(7, 7, 7))
    lanes.note(0, 3, "token")
    lanes.note(0, 1, "a later token")

    assert lanes.behind(0, 3, "a later token") == []
