"""A book in which any member may have any message, against the rule of delivery."""

import random
from array import array

import pytest

from partq.core.cursor.windows import Window
from partq.core.lanes.codec import BITS, decode_bits
from partq.core.model import Cause
from partq.core.ranges import Ranges
from partq.core.turns.turn_book import TurnBook
from partq.errors import BadRequestError, NotDeliveredError
from tests.core.batches import Batch

FOR_GOOD = 1e9


def offsets_of(window: Window) -> list[int]:
    """Return the offsets that a window holds."""
    if window.mask is None:
        return list(range(window.start, window.stop))
    return [o for part in decode_bits(BITS + window.mask, window.start) for o in range(*part)]


def batches(*counts):
    found, first = [], 0
    for count in counts:
        found.append(Batch(first, count, array("H", [7] * count)))
        first += count
    return found


def take(book, share, stored, credit=1000):
    """Have a share take its next window; return its offsets, or None."""
    while True:
        again = share.next_again
        offset = share.position if again is None else again
        batch = next((b for b in stored if b.first <= offset < b.first + b.count), None)
        if batch is None:
            return None
        stop, before = batch.first + batch.count, share.position
        window = share.take_again(stop, credit) if again is not None else None
        window = window or share.take(batch, stop, credit)
        if window is not None:
            return window
        if again is None and share.position == before:
            return None


def test_members_take_turns_over_the_same_messages():
    book, stored = TurnBook(0), batches(4, 4)
    (_, a), (_, b) = book.open_share(), book.open_share()
    assert offsets_of(take(book, a, stored, 2)) == [0, 1]
    assert offsets_of(take(book, b, stored, 3)) == [2, 3]
    assert offsets_of(take(book, a, stored)) == [4, 5, 6, 7]
    assert (a.in_flight, b.in_flight, book.in_flight, book.position) == (6, 2, 8, 8)


def test_the_times_of_what_is_sent_in_turn_are_watched_by_the_window_and_of_the_rest_one_by_one():
    book, stored = TurnBook(0), batches(4, 4)
    (_, a), (number, b) = book.open_share(), book.open_share()
    take(book, a, stored, 2)
    take(book, b, stored, 2)
    take(book, a, stored)
    assert not a._begun._again
    book.close_share(number, Cause.BROKER_CHANGE)
    assert offsets_of(take(book, a, stored)) == [2, 3]
    assert list(a._begun._again) == [2, 3]
    a.begin([(0, 2), (4, 6)], 0, 5.0)
    taken = a.time_out(5.0, now=6.0, delay_s=lambda count: 0.0)
    assert list(taken.offsets) == [0, 1, 4, 5]


def test_what_a_lost_member_had_goes_to_the_others_and_its_lowest_waits_for_its_count():
    book, stored = TurnBook(0), batches(6)
    (number, a), (_, b) = book.open_share(), book.open_share()
    take(book, a, stored, 4)
    book.close_share(number, Cause.FLOW_LOST)
    window = take(book, b, stored)
    assert offsets_of(window) == [1, 2, 3]
    assert window.cause == Cause.FLOW_LOST
    assert offsets_of(take(book, b, stored)) == [4, 5]
    book.counts_stored(book.counts_made)
    assert take(book, b, stored).redeliveries == [(0, 1)]


def test_a_message_that_is_given_back_waits_by_itself():
    book, stored = TurnBook(0), batches(4)
    (_, a), (_, b) = book.open_share(), book.open_share()
    take(book, a, stored, 2)
    assert a.nack([(0, 1)], 0, now=10.0, delay_s=lambda _: 5.0).asked == frozenset()
    book.counts_stored(book.counts_made)
    assert offsets_of(take(book, b, stored)) == [2, 3]
    assert (book.next_due, book.delayed, book.parked, book.parked_changes) == (15.0, 1, {}, 0)
    book.end_waits(15.0)
    again = take(book, b, stored)
    assert (offsets_of(again), again.cause, again.redeliveries) == ([0], Cause.NACK, [(0, 1)])
    assert book.list_parked() == []


def test_the_ack_of_a_copy_that_was_taken_back_counts_no_more_once_another_has_it():
    book, stored = TurnBook(0), batches(1)
    (_, a), (_, b) = book.open_share(), book.open_share()
    take(book, a, stored)
    a.begin([(0, 1)], 0, 0.0)
    a.time_out(1.0, now=1.0, delay_s=lambda _: 0.0)
    book.counts_stored(book.counts_made)
    book.end_waits(1.0)
    take(book, b, stored)
    with pytest.raises(NotDeliveredError):
        a.ack(-1, [(0, 1)], 0)
    assert b.ack(-1, [(0, 1)], book.number) == 1
    assert book.cursor == 1


def test_the_ack_of_a_copy_whose_time_is_over_counts_until_it_is_sent_again():
    book, stored = TurnBook(0), batches(3)
    _, a = book.open_share()
    take(book, a, stored)
    a.begin([(2, 3)], 0, 0.0)
    a.time_out(1.0, now=1.0, delay_s=lambda _: 9.0)
    a.ack(-1, [(2, 3)], 0)
    assert book.is_done(2)


def test_a_cumulative_ack_is_refused():
    book, stored = TurnBook(0), batches(3)
    _, a = book.open_share()
    take(book, a, stored)
    with pytest.raises(BadRequestError, match="type Shared"):
        a.ack(2, [], 0)
    assert (book.cursor, a.in_flight) == (0, 3)


def test_sparse_acks_take_a_bit_each():
    book, stored = TurnBook(0), batches(*[1000] * 200)
    _, a = book.open_share()
    acked, largest = 0, 0
    while acked < 100_000:
        window = take(book, a, stored)
        if window is None:  # the span is full: its lower half ends
            low = book.cursor
            a.ack(-1, [(o, o + 1) for o in range(low, low + 10_000) if not book.is_done(o)], 0)
            continue
        odd = [(o, o + 1) for o in offsets_of(window) if o % 2]
        acked += a.ack(-1, odd, 0)
        largest = max(largest, len(book.stored_acks()))
    assert 2000 < largest <= 4096


def test_nothing_is_sent_beyond_the_span_and_the_book_says_so():
    book, stored = TurnBook(0, max_span=3), batches(5)
    _, a = book.open_share()
    assert offsets_of(take(book, a, stored)) == [0, 1, 2]
    assert take(book, a, stored) is None
    assert "SpanFull" in book.stands_still
    a.ack(-1, [(0, 1)], 0)
    assert book.pop_news()
    assert offsets_of(take(book, a, stored)) == [3]


@pytest.mark.parametrize("seed", range(60))
def test_each_message_has_one_holder_and_all_come_to_their_end(seed):
    chance = random.Random(seed)
    stored = batches(*[chance.randint(1, 9) for _ in range(chance.randint(1, 6))])
    end = stored[-1].first + stored[-1].count
    book = TurnBook(0, max_span=chance.choice([3, 8, 100]))
    shares, held, done, now = {}, {}, set(), 0.0
    """held: offset -> (share, number of its copy)."""
    for step in range(400):
        if len(shares) < 3 and (not shares or chance.random() < 0.2):
            number, share = book.open_share()
            shares[number] = share
        number = chance.choice(list(shares))
        share, calm = shares[number], step > 250
        mine = sorted(o for o, (who, _) in held.items() if who == number)
        what = chance.choice(["take", "ack", "ack", "wait"] if calm else STEPS)
        if what == "take":
            window = take(book, share, stored, chance.randint(1, 12))
            for offset in offsets_of(window) if window else ():
                assert offset not in held, "one holder at a time"
                assert offset not in done
                held[offset] = (number, book.number)
        elif what == "lose":
            book.close_share(number, chance.choice([Cause.FLOW_LOST, Cause.BROKER_CHANGE]))
            del shares[number]
            held = {o: each for o, each in held.items() if each[0] != number}
        elif what == "wait":
            now += 5.0
            book.counts_stored(book.counts_made)
            book.end_waits(now)
        elif what == "hostile":  # the ack of what others have frees nothing
            offset = chance.randrange(end)
            if offset not in mine and offset not in done:
                with pytest.raises(NotDeliveredError):
                    share.ack(-1, [(offset, offset + 1)], book.number)
        elif mine:
            some = chance.sample(mine, chance.randint(1, len(mine)))
            for offset in some:
                part = [(offset, offset + 1)]
                if what == "ack":
                    assert share.ack(-1, part, held[offset][1]) == 1
                    done.add(offset)
                elif what == "return":
                    assert share.returned(part, 0) == 1
                else:
                    share.nack(part, held[offset][1], now=now, delay_s=lambda _: 3.0)
                del held[offset]
        assert book.in_flight == len(held)
        assert (
            sorted(Ranges(book.undone(0, end)).outside(0, end))
            == Ranges((o, o + 1) for o in sorted(done)).pairs()
        )
    for _ in range(4 * end + 20):
        now += 5.0
        book.counts_stored(book.counts_made)
        book.end_waits(now)
        for number, share in shares.items():
            window = take(book, share, stored)
            for offset in offsets_of(window) if window else ():
                held[offset] = (number, book.number)
            for offset in [o for o, each in held.items() if each[0] == number]:
                share.ack(-1, [(offset, offset + 1)], held.pop(offset)[1])
    assert book.cursor == end


STEPS = ["take", "take", "take", "ack", "nack", "return", "lose", "wait", "hostile"]


def test_a_group_that_is_moved_begins_without_shares_and_without_waits():
    book, stored = TurnBook(0), batches(4)
    _, a = book.open_share()
    take(book, a, stored)
    a.nack([(0, 1)], 0, now=0.0, delay_s=lambda _: 60.0)
    moved = book.moved_to(1)
    _, b = moved.open_share()
    window = take(moved, b, stored)
    assert (offsets_of(window), window.cause) == ([1, 2, 3], Cause.RESET)
    assert moved.next_due == FOR_GOOD or moved.delayed == 0
