"""What a flow does with windows: handing out, dropping, giving back."""

import pytest

from partq.client.consume.assignment.sequential_partition import SequentialPartition
from partq.core.dead_letters import LetterNote
from partq.errors import UndecodableError
from partq.wire import frames

TOKEN = (5, 9)


def deliver(start, stop, *, first=None, delivery=0, skip=(), cause=0, counts=()):
    return frames.Deliver(
        1, 0, *TOKEN, delivery, 5, 1_700_000_000_000, start if first is None else first, start,
        stop, cause, list(skip), list(counts),
    )  # fmt: skip


def rewound(start, *, delivery):
    return frames.Rewound(1, 0, *TOKEN, delivery, start, 6)


@pytest.fixture
def assigned(partition):
    return SequentialPartition(None, partition, TOKEN, 0)


@pytest.mark.req("PUL-70")
def test_a_window_hands_out_its_part_of_the_stored_batch(assigned, stored_batch):
    window = assigned.accept(deliver(11, 13, first=10), stored_batch(b"a", b"b", b"c", b"d"))
    batch = window.take_all()
    assert [m.value for m in batch] == [b"b", b"c"]
    assert list(batch.offsets) == [11, 12]
    assert batch.token(1) == (1, 5, 9, 12)


@pytest.mark.req("PUL-75")
def test_skipped_messages_are_not_handed_out(assigned, stored_batch):
    frame = deliver(10, 14, skip=[(11, 13)], counts=[(13, 2)])
    window = assigned.accept(frame, stored_batch(b"a", b"b", b"c", b"d"))
    first, last = window.take_all().deliveries()
    assert (first.value, first.offset, first.redeliveries) == (b"a", 10, 0)
    assert (last.value, last.offset, last.redeliveries) == (b"d", 13, 2)


def test_a_batch_after_single_messages_is_the_rest(assigned, stored_batch):
    window = assigned.accept(deliver(0, 3), stored_batch(b"a", b"b", b"c"))
    assert window.take_one().value == b"a"
    rest = window.take_all()
    assert ([m.value for m in rest], list(rest.offsets)) == ([b"b", b"c"], [1, 2])
    assert window.is_done


def released(assigned):
    release, freed = assigned.release()
    return release, freed.message_count


def test_the_bytes_of_a_delivery_come_back_once_when_nothing_of_it_is_left(assigned, stored_batch):
    batch = stored_batch(b"a", b"b")
    taken = assigned.accept(deliver(0, 2), batch)
    taken.take_one()
    assert taken.freed_bytes() == 0
    taken.take_one()
    assert [taken.freed_bytes(), taken.freed_bytes()] == [len(batch), 0]
    begun = assigned.accept(deliver(2, 4), batch)
    begun.take_one()
    assigned.accept(deliver(4, 6), batch)
    assigned.accept(deliver(6, 8), batch)
    assert assigned.rewind(rewound(5, delivery=1)) == (3, len(batch)), "offset 4 is still to come"
    assert assigned.forget() == (2, 2 * len(batch))
    assert assigned.forget() == (0, 0)


def test_a_release_starts_at_the_first_message_that_has_not_begun(assigned, stored_batch):
    first = assigned.accept(deliver(0, 3), stored_batch(b"a", b"b", b"c"))
    second = assigned.accept(deliver(3, 5), stored_batch(b"d", b"e"))
    first.take_one()
    release, freed = assigned.release()
    assert (release.start, release.delivery, freed.message_count) == (1, 0, 4)
    assert first.is_done
    assert second.is_done


def test_what_was_on_its_way_at_a_release_comes_again_in_its_turn(assigned, stored_batch):
    """A pause that ends at once: more of the same delivery may come behind it."""
    first = assigned.accept(deliver(0, 2), stored_batch(b"a", b"b"))
    first.take_one()
    release, _ = assigned.release()
    assert (release.start, release.delivery) == (1, 0)
    assert assigned.accept(deliver(2, 4), stored_batch(b"c", b"d")) is None
    assert released(assigned) == (None, 0)
    again = assigned.accept(deliver(1, 2, first=0, delivery=1), stored_batch(b"a", b"b"))
    behind = assigned.accept(deliver(2, 4, delivery=1), stored_batch(b"c", b"d"))
    assert [*again.take_all().offsets, *behind.take_all().offsets] == [1, 2, 3]


def test_nothing_is_released_when_everything_has_begun(assigned, stored_batch):
    window = assigned.accept(deliver(0, 2), stored_batch(b"a", b"b"))
    window.take_all()
    assert released(assigned) == (None, 0)


def test_what_was_released_comes_again_under_a_higher_number(assigned, stored_batch):
    assigned.accept(deliver(0, 2), stored_batch(b"a", b"b"))
    assigned.release()
    window = assigned.accept(deliver(0, 2, delivery=1), stored_batch(b"a", b"b"))
    assert len(window.take_all()) == 2


def test_a_rewind_drops_what_is_buffered_from_there_on(assigned, stored_batch):
    before = assigned.accept(deliver(0, 4), stored_batch(b"a", b"b", b"c", b"d"))
    before.take_one()
    assert assigned.rewind(rewound(2, delivery=1)).message_count == 2
    assert assigned.accept(deliver(4, 5), stored_batch(b"e")) is None, "it was on its way"
    window = assigned.accept(deliver(2, 3, delivery=1), stored_batch(b"c"))
    assert [m.value for m in before.take_all()] == [b"b"]
    assert [m.value for m in window.take_all()] == [b"c"]


def test_an_older_delivery_number_is_dropped(assigned, stored_batch):
    assigned.accept(deliver(0, 1, delivery=2), stored_batch(b"a"))
    assert assigned.accept(deliver(0, 1, delivery=1), stored_batch(b"a")) is None


def test_a_batch_that_does_not_decode_is_passed_over_as_a_whole(assigned, stored_batch):
    broken = stored_batch(b"a", b"b", b"c")[:-1] + b"\xc1"
    window = assigned.accept(deliver(10, 13, skip=[(10, 11)]), broken)
    with pytest.raises(UndecodableError):
        window.take_one()
    assert window.pass_over() == ([(11, 13)], 2)
    assert window.is_done
    assert released(assigned) == (None, 0), "the broker has it back already, by a nack"


def test_what_was_handed_out_is_told_once(assigned, stored_batch):
    assert assigned.begun() == []
    first = assigned.accept(deliver(0, 3), stored_batch(b"a", b"b", b"c"))
    assert assigned.begun() == [], "it is ready, and nobody has it"
    first.take_one()
    assigned.accept(deliver(3, 5), stored_batch(b"d", b"e"))
    assert (assigned.begun(), assigned.begun()) == ([(0, 1)], [])
    first.take_all()
    assert assigned.begun() == [(1, 3)]
    assigned.release()
    assert assigned.begun() == []


def test_what_comes_again_begins_again(assigned, stored_batch):
    assigned.accept(deliver(0, 3), stored_batch(b"a", b"b", b"c")).take_all()
    assert assigned.begun() == [(0, 3)]
    assigned.rewind(rewound(1, delivery=1))
    assert assigned.begun() == []
    assigned.accept(deliver(1, 3, first=0, delivery=1), stored_batch(b"a", b"b", b"c")).take_one()
    assert assigned.begun() == [(1, 2)]


def test_what_comes_out_of_turn_is_handed_out_beside_the_rest(assigned, stored_batch):
    """A group of free order: offset 1 was given back, and comes again alone."""
    batch = stored_batch(b"a", b"b", b"c", b"d")
    first = assigned.accept(deliver(0, 3, first=0), batch)
    first.take_one()
    first.take_one()
    assert assigned.begun() == [(0, 2)]
    again = assigned.accept(deliver(1, 2, first=0, cause=6), batch)
    release, freed = assigned.release()
    assert (release.start, freed.message_count) == (2, 1), "what has not begun in turn"
    assert not again.is_done
    late = assigned.accept(deliver(0, 1, first=0, cause=6), batch)
    assert late is not None, "below what was given back: the broker counts it as delivered"
    assert assigned.accept(deliver(3, 4, first=0), batch) is None
    assert again.take_one().value == b"b"
    assert assigned.begun() == [(1, 2)]
    assert late.take_one().value == b"a"
    assert assigned.begun() == [(0, 1)]
    behind = assigned.accept(deliver(2, 4, first=0, delivery=1), batch)
    assert [m.value for m in behind.take_all()] == [b"c", b"d"]
    assert assigned.begun() == [(2, 4)]


def test_what_came_again_is_in_hand_until_it_is_done(assigned, stored_batch):
    batch = stored_batch(b"a", b"b")
    assigned.accept(deliver(0, 2), batch).take_all()
    assigned.nack(1, 0, [(0, 1)], -1, LetterNote())
    assigned.ack(2, 0, -1, [(1, 2)])
    assert not assigned.has_in_hand
    assigned.accept(deliver(0, 1), batch)
    assert assigned.has_in_hand, "out of turn it cannot be released"
    assigned.nack(3, 0, [(0, 1)], -1, LetterNote())
    assert not assigned.has_in_hand
    assigned.accept(deliver(0, 1), batch).take_one()
    assigned.ack(4, 0, -1, [(0, 1)])
    assert not assigned.has_in_hand


def test_what_came_again_in_turn_is_in_hand_once_begun(assigned, stored_batch):
    batch = stored_batch(b"a", b"b")
    assigned.accept(deliver(0, 2), batch).take_one()
    assigned.nack(1, 0, [(0, 1)], -1, LetterNote())
    assigned.rewind(rewound(0, delivery=1))
    window = assigned.accept(deliver(0, 2, delivery=1), batch)
    assert not assigned.has_in_hand
    window.take_one()
    assert assigned.has_in_hand
    assigned.ack(2, 1, 1, [])
    assert not assigned.has_in_hand


def test_what_came_out_of_turn_is_out_of_hand_after_a_step_back_before_it(assigned, stored_batch):
    """It comes again, in turn; an ack that named it would acknowledge what nobody has begun."""
    batch = stored_batch(b"a", b"b", b"c")
    assigned.accept(deliver(0, 3), batch).take_all()
    assigned.ack(1, 0, 1, [])
    assigned.accept(deliver(1, 2, first=0), batch).take_all()
    assert assigned.begun_again(3) == [(1, 2)]
    assigned.rewind(rewound(1, delivery=1))
    assert not assigned.has_in_hand
    assert assigned.begun_again(3) == []
