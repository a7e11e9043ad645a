"""The book of a group against a model that keeps every message on its own."""

from math import inf

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from partq.core.cursor.cursor import GroupCursor
from partq.core.model import Cause
from partq.errors import NotDeliveredError, RewoundError
from tests.core.batches import Batch
from tests.core.cursor.book_model import Message, Model, Wait

REWINDS = st.sampled_from(
    [Cause.FLOW_LOST, Cause.FORCED_COMMIT, Cause.BROKER_CHANGE, Cause.STORE_ROLLED_BACK]
)


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
        self.book = GroupCursor(
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
        window = book.take(Batch(first), stop, credit)
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
        self.book.end_waits(model.now)

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
            before = self.everything_kept()
            with pytest.raises(error):
                nack()
            assert self.everything_kept() == before, "a refused nack has changed something"
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
            before = self.everything_kept()
            with pytest.raises(expected):
                book.ack(upto, ranges, number)
            assert self.everything_kept() == before, "a refused ack has changed something"
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
            before = self.everything_kept()
            with pytest.raises(expected):
                book.release(start, number)
            assert self.everything_kept() == before, "a refused release has changed something"
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

    def everything_kept(self):
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
