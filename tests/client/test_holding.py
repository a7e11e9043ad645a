"""What a flow does with windows: handing out, dropping, giving back."""

import pytest

from partq.client.deliveries import join_ranges
from partq.client.holding import Holding
from partq.errors import UndecodableError
from partq.wire import frames

TOKEN = (5, 9)


def deliver(start, stop, *, first=None, delivery=0, skip=(), cause=0, counts=()):
    return frames.Deliver(
        1, 0, *TOKEN, delivery, 5, 1_700_000_000_000, start if first is None else first, start,
        stop, cause, list(skip), list(counts),
    )  # fmt: skip


@pytest.fixture
def holding(partition):
    return Holding(None, partition, TOKEN, 0)


def test_a_window_hands_out_its_part_of_the_stored_batch(holding, stored_batch):
    window, _ = holding.accept(deliver(11, 13, first=10), stored_batch(b"a", b"b", b"c", b"d"))
    batch = window.take_all()
    assert [m.value for m in batch] == [b"b", b"c"]
    assert list(batch.offsets) == [11, 12]
    assert batch.token(1) == (1, 5, 9, 12)


def test_skipped_messages_are_not_handed_out(holding, stored_batch):
    frame = deliver(10, 14, skip=[(11, 13)], counts=[(13, 2)])
    window, _ = holding.accept(frame, stored_batch(b"a", b"b", b"c", b"d"))
    first, last = window.take_all().deliveries()
    assert (first.value, first.offset, first.redeliveries) == (b"a", 10, 0)
    assert (last.value, last.offset, last.redeliveries) == (b"d", 13, 2)


def test_a_batch_after_single_messages_is_the_rest(holding, stored_batch):
    window, _ = holding.accept(deliver(0, 3), stored_batch(b"a", b"b", b"c"))
    assert window.take_one().value == b"a"
    rest = window.take_all()
    assert ([m.value for m in rest], list(rest.offsets)) == ([b"b", b"c"], [1, 2])
    assert window.is_done


def test_a_release_starts_at_the_first_message_that_has_not_begun(holding, stored_batch):
    first, _ = holding.accept(deliver(0, 3), stored_batch(b"a", b"b", b"c"))
    second, _ = holding.accept(deliver(3, 5), stored_batch(b"d", b"e"))
    first.take_one()
    release, freed = holding.release()
    assert (release.start, release.delivery, freed) == (1, 0, 4)
    assert first.is_done
    assert second.is_done


def test_what_was_on_its_way_at_a_release_comes_again_in_its_turn(holding, stored_batch):
    """A pause that ends at once: more of the same delivery may come behind it."""
    first, _ = holding.accept(deliver(0, 2), stored_batch(b"a", b"b"))
    first.take_one()
    release, _ = holding.release()
    assert (release.start, release.delivery) == (1, 0)
    assert holding.accept(deliver(2, 4), stored_batch(b"c", b"d")) == (None, 2)
    assert holding.release() == (None, 0)
    again, _ = holding.accept(deliver(1, 2, first=0, delivery=1), stored_batch(b"a", b"b"))
    behind, _ = holding.accept(deliver(2, 4, delivery=1), stored_batch(b"c", b"d"))
    assert [*again.take_all().offsets, *behind.take_all().offsets] == [1, 2, 3]


def test_nothing_is_released_when_everything_has_begun(holding, stored_batch):
    window, _ = holding.accept(deliver(0, 2), stored_batch(b"a", b"b"))
    window.take_all()
    assert holding.release() == (None, 0)


def test_what_was_released_comes_again_under_a_higher_number(holding, stored_batch):
    holding.accept(deliver(0, 2), stored_batch(b"a", b"b"))
    holding.release()
    window, freed = holding.accept(deliver(0, 2, delivery=1), stored_batch(b"a", b"b"))
    assert (len(window.take_all()), freed) == (2, 0)


def test_a_rewind_drops_what_is_buffered_from_there_on(holding, stored_batch):
    before, _ = holding.accept(deliver(0, 4), stored_batch(b"a", b"b", b"c", b"d"))
    before.take_one()
    window, freed = holding.accept(deliver(2, 3, delivery=1), stored_batch(b"c"))
    assert freed == 2
    assert [m.value for m in before.take_all()] == [b"b"]
    assert [m.value for m in window.take_all()] == [b"c"]


def test_an_older_delivery_number_is_dropped(holding, stored_batch):
    holding.accept(deliver(0, 1, delivery=2), stored_batch(b"a"))
    assert holding.accept(deliver(0, 1, delivery=1), stored_batch(b"a")) == (None, 1)


def test_nothing_comes_after_a_batch_that_does_not_decode(holding, stored_batch):
    broken = stored_batch(b"a")[:-1] + b"\xc1"
    window, _ = holding.accept(deliver(0, 1), broken)
    holding.accept(deliver(1, 2), stored_batch(b"b"))
    with pytest.raises(UndecodableError):
        window.take_one()
    assert holding.stop_at(window) == 2
    assert holding.accept(deliver(2, 3), stored_batch(b"c")) == (None, 1)
    release, _ = holding.release()
    assert release.start == 0, "the broken message and all behind it go back"


@pytest.mark.parametrize(
    ("ranges", "joined"),
    [
        ([], []),
        ([(1, 2)], [(1, 2)]),
        ([(3, 4), (1, 2), (2, 3)], [(1, 4)]),
        ([(1, 5), (2, 3), (7, 8)], [(1, 5), (7, 8)]),
    ],
)
def test_ranges_are_joined(ranges, joined):
    assert join_ranges(ranges) == joined
