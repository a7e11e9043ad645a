"""States of keys before they are stored: which of them the store may refuse, and what stays."""

import pytest

from partq.broker.partition.unstored_states import StateGuard, UnstoredStates

KEY, OTHER = "a", "b"
SLOT, OTHER_SLOT = 7, 8


@pytest.fixture
def states():
    return UnstoredStates()


def test_a_refused_state_leaves_the_one_before_it_that_came_with_an_ack(states):
    states.put(KEY, b"acked")
    guard = StateGuard(SLOT)
    states.put(KEY, b"left", guard)
    assert states.find(KEY) == b"left"
    assert (dict(states.to_store()), states.guarded_slots) == ({KEY: b"left"}, [SLOT])
    states.refuse_guarded(SLOT)
    assert (guard.is_refused, states.find(KEY)) == (True, b"acked")
    assert (dict(states.to_store()), states.guarded_slots) == ({KEY: b"acked"}, [])
    states.stored(1)
    assert states.find(KEY) is ...


def test_so_it_does_after_a_flush_without_an_answer(states):
    states.put(KEY, b"acked")
    states.to_store()
    states.put(KEY, b"left", StateGuard(SLOT))
    assert dict(states.to_store()) == {KEY: b"left"}
    states.refuse_guarded(SLOT)
    assert dict(states.to_store()) == {KEY: b"acked"}


def test_what_comes_during_a_flush_waits_for_the_next(states):
    states.put(KEY, b"acked")
    states.to_store()
    states.put(KEY, b"left", StateGuard(SLOT))
    states.stored(1)
    assert states.find(KEY) == b"left"
    assert (dict(states.to_store()), states.guarded_slots) == ({KEY: b"left"}, [SLOT])
    states.put(KEY, b"later", StateGuard(SLOT))
    states.stored(1)
    assert dict(states.to_store()) == {KEY: b"later"}
    states.stored(1)
    assert (dict(states.to_store()), states.guarded_slots) == ({}, [])


def test_an_ack_stands_above_a_state_that_may_be_refused(states):
    states.put(KEY, b"left", StateGuard(SLOT))
    states.put(KEY, b"acked")
    states.put(OTHER, b"left", StateGuard(OTHER_SLOT))
    assert states.guarded_slots == [OTHER_SLOT]
    states.to_store()
    states.refuse_guarded(OTHER_SLOT)
    assert dict(states.to_store()) == {KEY: b"acked"}


def test_no_more_keys_are_counted_than_there_are_states(states):
    states.put(KEY, b"left", StateGuard(SLOT))
    states.put(KEY, None, StateGuard(SLOT))
    assert states.has_room(OTHER, 1)
    states.put(KEY, b"left", StateGuard(SLOT))
    assert not states.has_room(OTHER, 1)
    states.to_store()
    states.refuse_guarded(SLOT)
    assert states.has_room(OTHER, 1)
    states.put(KEY, b"acked")
    states.to_store()
    states.stored(None)
    assert (states.stored_count, states.has_room(OTHER, 2)) == (1, True)
