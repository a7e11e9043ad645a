"""The book of a group against a model that keeps every message on its own."""

from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from partq.core.delivery import Delivery
from partq.core.horizon import ACK_SPAN
from partq.core.model import Cause
from partq.errors import NotDeliveredError, RewoundError

COUNTED = {Cause.FLOW_LOST, Cause.FORCED_COMMIT}
REWINDS = st.sampled_from(
    [Cause.FLOW_LOST, Cause.FORCED_COMMIT, Cause.BROKER_CHANGE, Cause.STORE_ROLLED_BACK]
)


@dataclass
class Message:
    """What is true of one message."""

    is_acked: bool = False
    is_in_hand: bool = False
    """Sent under the current token, and not given back."""
    may_have_begun: bool = False
    """Sent, and not given back since."""
    cause: Cause = Cause.NONE
    redeliveries: int = 0
    sent_at: int = 0
    """Which sending it was, the last one in turn."""
    sent_again_at: int = 0
    """The same of what was sent out of turn since, and is in flight."""


class Wait(NamedTuple):
    due: float
    holds: bool
    cause: Cause


@dataclass
class Model:
    """A book as the documents tell it, message by message."""

    messages: list[Message]
    position: int = 0
    number: int = 0
    released: list[int] = field(default_factory=list)
    """Where the step back began that ended each delivery number."""
    delivered: int = 0
    """Everything below may be in the application's hands."""
    waiting: dict[int, Wait] = field(default_factory=dict)
    again: dict[int, Cause] = field(default_factory=dict)
    """What is to be sent out of turn."""
    now: float = 0
    sendings: int = 0
    given_back: dict[int, int] = field(default_factory=dict)
    """What was given back, and under which delivery number it is sent again at the earliest."""

    @property
    def cursor(self):
        return next(
            (at for at, message in enumerate(self.messages) if not message.is_acked),
            len(self.messages),
        )

    def open_in(self, start, stop):
        """The offsets of [start, stop) that nobody has acknowledged."""
        return [at for at in range(start, stop) if not self.messages[at].is_acked]

    def in_flight(self):
        return [at for at, m in enumerate(self.messages) if m.is_in_hand and not m.is_acked]

    def ack(self, offsets):
        """Acknowledge; return how many were in flight."""
        before = len(self.in_flight())
        for offset in offsets:
            self.messages[offset].is_acked = True
            self.waiting.pop(offset, None)
            self.again.pop(offset, None)
        return before - len(self.in_flight())

    def spoken_of(self, upto):
        """What a consumer may mean that has got the message below `upto`, and acknowledges all."""
        return {
            at
            for at in range(upto)
            if at == upto - 1
            or (
                (at not in self.waiting and at not in self.again)
                and self.messages[at].sent_again_at <= self.messages[upto - 1].sent_at
            )
        }

    def rewind(self, cause):
        if self.in_flight() and cause in COUNTED:
            self.messages[self.in_flight()[0]].redeliveries += 1
        for message in self.messages[self.cursor : self.position]:
            message.cause = cause
        self.go_back(self.cursor)
        self.number, self.released = 0, []
        self.given_back = {}
        self.delivered = self.position

    def go_back(self, start):
        """Send everything from `start` on in turn again."""
        for message in self.messages[start:]:
            message.is_in_hand = False
            message.sent_again_at = 0
        for offset in [offset for offset in self.again if offset >= start]:
            self.messages[offset].cause = self.again.pop(offset)
        self.position = start
        self.released.append(start)
        self.number += 1

    def step_back_since(self, number):
        """The lowest offset that was taken back since a delivery number."""
        return max(min(self.released[max(0, number) :], default=len(self.messages)), self.cursor)

    def move_to(self, position):
        self.sendings += 1
        for message in self.messages[self.position : position]:
            message.sent_at = self.sendings
        self.position = position
        self.delivered = max(self.delivered, position)


class Books(RuleBasedStateMachine):
    """Take, ack, release, rewind and mark in any order, with and without sense."""

    @initialize(
        sizes=st.lists(st.integers(1, 12), min_size=1, max_size=6),
        acked=st.sets(st.integers(0, 15)),
        redelivered=st.integers(0, 3),
    )
    def open(self, sizes, acked, redelivered):
        ends = [sum(sizes[: at + 1]) for at in range(len(sizes))]
        self.batches = list(zip([0, *ends], ends, strict=False))
        self.end = ends[-1]
        self.model = Model([Message() for _ in range(self.end)])
        acked = {offset for offset in acked if offset < self.end and offset != 0}
        self.model.ack(acked)
        self.model.messages[0].redeliveries = redelivered
        self.book = Delivery(
            0, [(o, o + 1) for o in sorted(acked)], {0: redelivered} if redelivered else {}
        )
        self.cursor_before = 0

    @rule(credit=st.integers(1, 20))
    def take(self, credit):
        model, book = self.model, self.book
        if book.position >= self.end:
            return
        first, stop = next(b for b in self.batches if b[0] <= book.position < b[1])
        before = book.position
        held = [o for o, w in model.waiting.items() if w.holds and before <= o < stop]
        limit = min(held, default=stop)
        may_go = [o for o in model.open_in(before, limit) if o not in model.waiting]
        window = book.take(first, stop, credit)
        if window is None:
            assert not may_go, "something was left to send"
            assert (book.position <= limit) if held else (book.position >= stop)
            model.move_to(book.position)
            return

        assert window.start == may_go[0], "an offset was passed over"
        assert window.stop == book.position <= limit, "sent what waits for another"
        assert before <= window.start < window.stop
        sent = [o for o in may_go if o < window.stop]
        skipped = {offset for pair in window.skip for offset in range(*pair)}
        assert set(sent) == set(range(window.start, window.stop)) - skipped
        assert window.messages == len(sent) <= credit
        assert window.redeliveries == [
            (o, model.messages[o].redeliveries)
            for o in range(window.start, window.stop)
            if model.messages[o].redeliveries and not model.messages[o].is_acked
        ], "counts"
        for offset in sent:
            message = model.messages[offset]
            assert message.cause is window.cause
            assert window.cause is not Cause.NONE or not message.may_have_begun
            assert not message.is_in_hand, "sent twice under one token"
            message.is_in_hand = message.may_have_begun = True
        assert (
            window.stop == limit
            or window.messages == credit
            or model.messages[window.stop].cause is not window.cause
        ), "the window could have been larger"
        model.move_to(window.stop)

    @rule(credit=st.integers(0, 20))
    def take_again(self, credit):
        model, book = self.model, self.book
        start = book.waiting.next_again
        assert start == min(model.again, default=None)
        if start is None:
            return
        stop = next(stop for _, stop in self.batches if start < stop)
        window = book.take_again(stop, credit)
        if not credit:
            assert window is None
            return
        assert window.start == start < window.stop <= min(stop, start + credit)
        assert window.messages == window.stop - window.start
        assert window.skip == []
        for offset in range(window.start, window.stop):
            message = model.messages[offset]
            assert model.again.pop(offset) is window.cause is not Cause.NONE
            assert (offset, message.redeliveries) in window.redeliveries
            assert not message.is_acked
            message.is_in_hand = True
            message.sent_again_at = model.sendings = model.sendings + 1

    @rule(seconds=st.integers(0, 5))
    def wait(self, seconds):
        model = self.model
        model.now += seconds
        due = [o for o, w in model.waiting.items() if w.due <= model.now]
        for offset in due:
            cause = model.waiting.pop(offset).cause
            if offset < model.position:
                model.again[offset] = cause
            else:
                model.messages[offset].cause = cause
        self.book.settle(model.now)

    @rule(
        ranges=st.lists(st.tuples(st.integers(-1, 75), st.integers(1, 4)), max_size=3),
        number=st.integers(-1, 4),
        is_free=st.booleans(),
        delay_s=st.integers(0, 5),
        begun=st.none() | st.integers(0, 75),
    )
    def nack(self, ranges, number, is_free, delay_s, begun):
        ranges = [(start, start + size) for start, size in ranges]
        self.reject(ranges, number, is_free, delay_s, begun)

    @precondition(lambda self: self.model.in_flight())
    @rule(
        data=st.data(),
        age=st.integers(0, 2),
        is_free=st.booleans(),
        delay_s=st.integers(0, 5),
        begun=st.none() | st.integers(0, 75),
    )
    def nack_what_was_sent(self, data, age, is_free, delay_s, begun):
        model = self.model
        singles = data.draw(st.lists(st.sampled_from(model.in_flight()), min_size=1, max_size=4))
        number = max(0, model.number - age)
        self.reject([(o, o + 1) for o in singles], number, is_free, delay_s, begun)

    def reject(self, ranges, number, is_free, delay_s, begun):
        model, book = self.model, self.book

        def nack():
            return book.nack(
                ranges, number, now=model.now, delay_s=lambda count: delay_s * count,
                is_free=is_free, begun=begun,
            )  # fmt: skip

        error = None
        if not 0 <= number <= model.number:
            error = RewoundError
        elif any(start < 0 or stop > model.delivered for start, stop in ranges):
            error = NotDeliveredError
        if error is not None:
            before = self.picture()
            with pytest.raises(error):
                nack()
            assert self.picture() == before, "a refused nack has changed something"
            return
        anew_from = model.step_back_since(number) if number < model.number else model.position
        offsets = {
            o
            for o in set().union(*(range(*pair) for pair in ranges))
            if not model.messages[o].is_acked
            and o not in model.waiting
            and o not in model.again
            and not anew_from <= o < model.position
            and number >= model.given_back.get(o, 0)
        }
        before = len(model.in_flight())
        for offset in offsets:
            message = model.messages[offset]
            message.redeliveries += 1
            message.is_in_hand = False
            message.sent_again_at = 0
            model.given_back[offset] = model.number + (offset < model.position and not is_free)
            due = model.now + delay_s * message.redeliveries
            model.waiting[offset] = Wait(due, not is_free, Cause.NACK)
        lowest = min(offsets, default=model.position)
        rewound_from = None
        if not is_free and lowest < model.position:
            rewound_from = lowest
            begun = model.position if begun is None else max(begun, max(offsets) + 1)
            for message in model.messages[lowest : min(begun, model.position)]:
                message.cause = Cause.NACK
            for message in model.messages[begun : model.position]:
                message.may_have_begun = False
            model.go_back(lowest)
        outcome = nack()
        assert outcome.counted == len(offsets)
        assert outcome.messages == before - len(model.in_flight())
        assert outcome.rewound_from == rewound_from

    @rule(
        upto=st.integers(-1, 75),
        ranges=st.lists(st.tuples(st.integers(-1, 75), st.integers(1, 8)), max_size=4),
        number=st.integers(-1, 4),
    )
    def ack(self, upto, ranges, number):
        self.acknowledge(upto, [(start, start + size) for start, size in ranges], number)

    @precondition(lambda self: self.model.in_flight())
    @rule(share=st.floats(0, 1), age=st.integers(0, 2), data=st.data())
    def ack_what_was_sent(self, share, age, data):
        model = self.model
        upto = round(model.position * share)
        singles = data.draw(st.lists(st.sampled_from(model.in_flight()), max_size=6))
        self.acknowledge(upto, [(o, o + 1) for o in singles], max(0, model.number - age))

    def acknowledge(self, upto, ranges, number):
        model, book = self.model, self.book
        highest = max([upto, *(stop for _, stop in ranges)])
        allowed = model.step_back_since(number)
        expected = None
        if number > model.number or (number < model.number and upto > allowed):
            expected = RewoundError
        elif number < 0 and not model.number and upto > model.cursor:
            expected = RewoundError  # there never was such a number
        elif (
            upto > model.position
            or highest > model.delivered
            or any(start < 0 for start, _ in ranges)
        ):
            expected = NotDeliveredError
        if expected is not None:
            before = self.picture()
            with pytest.raises(expected):
                book.ack(upto, ranges, number)
            assert self.picture() == before, "a refused ack has changed something"
            return
        offsets = model.spoken_of(upto).union(*(range(*pair) for pair in ranges))
        assert book.ack(upto, ranges, number) == model.ack(offsets)
        model.move_to(max(model.position, model.cursor))

    @rule(start=st.integers(0, 75), number=st.integers(-1, 4))
    def release(self, start, number):
        self.give_back(start, number)

    @rule(share=st.floats(0, 1))
    def release_what_has_not_begun(self, share):
        self.give_back(round(self.model.position * share), self.model.number)

    def give_back(self, start, number):
        model, book = self.model, self.book
        from_ = max(start, model.cursor)
        expected = None
        if 0 <= number < model.number and start >= model.step_back_since(number):
            assert book.release(start, number) == 0, "all of it was taken back before"
            return
        if number != model.number:
            expected = RewoundError
        elif from_ > model.position:
            expected = NotDeliveredError
        if expected is not None:
            before = self.picture()
            with pytest.raises(expected):
                book.release(start, number)
            assert self.picture() == before, "a refused release has changed something"
            return
        given_back = [offset for offset in model.in_flight() if offset >= from_]
        assert book.release(start, number) == len(given_back)
        for offset in given_back:
            message = model.messages[offset]
            message.is_in_hand = message.may_have_begun = False
        if given_back:
            model.go_back(from_)
            model.delivered = from_

    @rule(cause=REWINDS)
    def rewind(self, cause):
        self.model.rewind(cause)
        self.book.rewind(cause)

    @rule(stop=st.integers(0, 75), cause=REWINDS)
    def mark(self, stop, cause):
        stop = min(stop, self.end)
        for message in self.model.messages[self.model.cursor : stop]:
            message.cause = cause
        self.book.mark(stop, cause)

    def picture(self):
        book = self.book
        return (
            book.cursor, book.acked.pairs(), book.position, book.in_flight, book.number,
            book.redeliveries, book.waiting.count(0, self.end), book.waiting.next_due,
        )  # fmt: skip

    @invariant()
    def book_and_model_agree(self):
        model, book = self.model, self.book
        assert book.cursor == model.cursor >= self.cursor_before
        self.cursor_before = book.cursor
        assert book.in_flight == len(model.in_flight())
        assert (book.position, book.number) == (model.position, model.number)
        assert book.position >= book.cursor
        waiting = model.waiting.keys() | model.again.keys()
        assert {o for o in range(self.end) if o in book.waiting} == waiting
        assert book.waiting.count(0, self.end) == len(waiting)
        assert book.waiting.next_due == min((w.due for w in model.waiting.values()), default=inf)
        above = {o for o, m in enumerate(model.messages) if m.is_acked and o >= model.cursor}
        assert {o for pair in book.acked.pairs() for o in range(*pair)} == above
        assert book.redeliveries == {
            o: m.redeliveries
            for o, m in enumerate(model.messages)
            if m.redeliveries and not m.is_acked
        }


Books.TestCase.settings = settings(deadline=None, max_examples=200, stateful_step_count=40)
test_any_order_of_events = Books.TestCase


# ---- what is worth a sentence of its own --------------------------------------------------------


def sent(*, stop, batch_end=None, acked=()):
    """A book whose flow has got the offsets below `stop`."""
    book = Delivery(0, acked)
    assert book.take(0, batch_end or stop, stop) is not None
    return book


def test_what_was_acknowledged_behind_the_position_is_not_sent_again():
    book = sent(stop=5, acked=[(5, 10)])
    book.ack(5, [], 0)  # the cursor passes the offsets that were acknowledged before
    assert (book.cursor, book.position) == (10, 10)
    window = book.take(5, 20, 100)
    assert (window.start, window.stop, window.cause) == (10, 20, Cause.NONE)


def test_a_cumulative_ack_counts_up_to_what_was_released_after_its_delivery():
    book = sent(stop=20)
    book.release(5, 0)  # a pause that lapses
    book.take(0, 20, 15)
    book.release(15, 1)  # another one, while 5 to 15 are in hand
    assert book.ack(15, [], 1) == 15
    assert (book.cursor, book.in_flight) == (15, 0)


def test_a_cumulative_ack_does_not_reach_what_was_released():
    book = sent(stop=20)
    book.release(0, 0)
    book.take(0, 20, 20)
    book.release(10, 1)
    with pytest.raises(RewoundError, match="under delivery 0; the current one is 2"):
        book.ack(1, [], 0)
    assert book.ack(-1, [(3, 4)], 0) == 1, "a single one is no mistake: it was delivered"


def test_released_messages_come_again_without_a_cause():
    book = sent(stop=8)
    book.release(3, 0)
    window = book.take(0, 8, 8)
    assert (window.start, window.stop, window.cause) == (3, 8, Cause.NONE)
    assert book.number == 1


def test_a_window_has_one_cause():
    book = sent(stop=10)
    book.rewind(Cause.FLOW_LOST)
    windows = [book.take(0, 30, 100) for _ in range(2)]
    assert [(w.start, w.stop, w.cause) for w in windows] == [
        (0, 10, Cause.FLOW_LOST), (10, 30, Cause.NONE),
    ]  # fmt: skip


def test_the_last_event_explains_an_offset():
    book = Delivery(0)
    book.mark(20, Cause.BROKER_CHANGE)
    book.take(0, 30, 10)
    book.rewind(Cause.FORCED_COMMIT)
    windows = [book.take(0, 30, 100) for _ in range(3)]
    assert [(w.stop, w.cause) for w in windows] == [
        (10, Cause.FORCED_COMMIT), (20, Cause.BROKER_CHANGE), (30, Cause.NONE),
    ]  # fmt: skip


@pytest.mark.parametrize("cause", list(COUNTED))
def test_a_fault_counts_for_the_lowest_message_only(cause):
    book = sent(stop=10)
    book.ack(2, [(4, 5)], 0)
    assert book.redeliveries_after_rewind() == {2: 1}
    book.rewind(cause)
    assert book.redeliveries == {2: 1}
    assert book.take(0, 10, 10).redeliveries == [(2, 1)]
    book.ack(3, [], 0)
    assert book.redeliveries == {}


@pytest.mark.parametrize("cause", [Cause.BROKER_CHANGE, Cause.STORE_ROLLED_BACK])
def test_what_brokers_do_counts_against_no_message(cause):
    book = sent(stop=10)
    book.rewind(cause)
    assert book.redeliveries == {}


def test_a_rewind_with_nothing_in_flight_counts_for_nobody():
    book = sent(stop=10)
    book.ack(10, [], 0)
    book.rewind(Cause.FLOW_LOST)
    assert (book.redeliveries, book.position) == ({}, 10)


@pytest.mark.parametrize(("cursor", "windows"), [
    pytest.param(0, [(0, 12, Cause.RESET), (12, 20, Cause.NONE)], id="back"),
    pytest.param(8, [(8, 12, Cause.RESET), (12, 20, Cause.NONE)], id="inside what was sent"),
    pytest.param(15, [(15, 20, Cause.NONE)], id="forward"),
])  # fmt: skip
def test_a_reset_begins_again_and_says_so_of_what_was_sent_before(cursor, windows):
    book = sent(stop=12, batch_end=20)
    book.ack(5, [(7, 9)], 0)
    book = book.moved_to(cursor)
    assert (book.cursor, book.in_flight, book.acked.pairs(), book.number) == (cursor, 0, [], 0)
    found = [book.take(0, 20, 100) for _ in windows]
    assert [(w.start, w.stop, w.cause) for w in found] == windows
    assert [w.skip for w in found] == [[]] * len(found)


def test_two_resets_forget_nothing_of_what_was_sent():
    book = sent(stop=12, batch_end=20)
    book = book.moved_to(20).moved_to(5)
    window = book.take(0, 20, 100)
    assert (window.start, window.stop, window.cause) == (5, 20, Cause.RESET)


def test_nothing_is_sent_beyond_the_span_above_the_cursor():
    huge = 10 * ACK_SPAN
    book = Delivery(0)
    assert book.take(0, huge, huge).stop == ACK_SPAN
    assert book.take(0, huge, huge) is None
    book.ack(-1, [(1, ACK_SPAN)], 0)
    assert book.take(0, huge, huge) is None, "the lowest one holds the cursor"
    book.ack(1, [], 0)
    assert book.cursor == ACK_SPAN
    assert book.take(0, huge, huge).stop == 2 * ACK_SPAN


def test_no_credit_takes_nothing():
    book = Delivery(0)
    assert book.take(0, 5, 0) is None
    assert (book.position, book.in_flight) == (0, 0)


def test_a_full_batch_acknowledged_in_every_other_place_is_cut_by_credit():
    count = 65_536
    book = sent(stop=count)
    book.ack(-1, [(offset, offset + 1) for offset in range(1, count, 2)], 0)
    book.rewind(Cause.FLOW_LOST)
    window = book.take(0, count, 1000)
    assert (window.start, window.stop, window.messages) == (0, 2000, 1000)
    assert len(window.skip) == 1000


@pytest.mark.parametrize(("upto", "ranges", "number", "error"), [
    pytest.param(11, [], 0, NotDeliveredError, id="beyond what was delivered"),
    pytest.param(-1, [(0, 2), (9, 11)], 0, NotDeliveredError, id="one of the ranges is"),
    pytest.param(-1, [(3, 3)], 0, NotDeliveredError, id="an empty range"),
    pytest.param(-1, [(-2, 3)], 0, NotDeliveredError, id="a negative offset"),
    pytest.param(2**63, [], 0, NotDeliveredError, id="absurd"),
    pytest.param(5, [], 1, RewoundError, id="a delivery number that never was"),
])  # fmt: skip
def test_a_refused_ack_changes_nothing(upto, ranges, number, error):
    book = sent(stop=10)
    with pytest.raises(error):
        book.ack(upto, ranges, number)
    assert (book.cursor, book.in_flight, book.acked.pairs()) == (0, 10, [])


def test_a_message_that_waited_out_of_turn_keeps_its_cause_when_its_turn_comes():
    book = sent(stop=8)
    book.nack([(5, 6)], 0, now=0, delay_s=lambda count: 0, is_free=True)
    book.settle(0)
    book.release(4, 0)
    windows = [book.take(0, 8, 8) for _ in range(3)]
    assert book.waiting.next_again is None
    assert [(w.start, w.cause) for w in windows] == [
        (4, Cause.NONE), (5, Cause.NACK), (6, Cause.NONE),
    ]  # fmt: skip


def test_nothing_behind_a_nacked_message_is_sent_before_it():
    book = sent(stop=8, batch_end=12)
    nacked = book.nack([(5, 6), (3, 4)], 0, now=0, delay_s=lambda count: 10, is_free=False)
    assert (nacked.messages, nacked.rewound_from, book.number) == (5, 3, 1)
    assert book.take(0, 12, 12) is None
    book.ack(-1, [(4, 5)], 0)  # it was in hand
    book.settle(9.9)
    assert book.take(0, 12, 12) is None
    book.settle(10)
    window = book.take(0, 12, 12)
    assert (window.start, window.stop, window.skip, window.cause) == (3, 8, [(4, 5)], Cause.NACK)
    assert window.redeliveries == [(3, 1), (5, 1)]
    assert book.take(0, 12, 12).cause is Cause.NONE


def test_the_wait_outlives_the_member():
    book = sent(stop=8)
    book.nack([(5, 6)], 0, now=0, delay_s=lambda count: 10, is_free=False)
    book.ack(5, [], 0)
    assert book.in_flight == 0, "what waits holds no handoff up"
    book.rewind(Cause.NONE)
    assert book.take(0, 8, 8) is None
    book.settle(10)
    assert book.take(0, 8, 8).redeliveries == [(5, 1)]


def test_a_lost_flow_does_not_count_against_what_waits():
    book = sent(stop=8)
    book.nack([(0, 1)], 0, now=0, delay_s=lambda count: 10, is_free=True)
    book.rewind(Cause.FLOW_LOST)
    assert book.redeliveries == {0: 1, 1: 1}
