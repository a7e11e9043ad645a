"""The book of lanes against a model, with a member that obeys the protocol, in any order of events.

Checked at each step, by the names of the design: a message is begun only when all lower ones of its
lane are finished (order), a count is stored before its message goes out again, a message that was
given back is not sent before its time, and whatever may be sent is sent (nothing is stuck).
"""

from array import array
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from partq.core.lanes.codec import decode_bits
from partq.core.lanes.lane_book import LaneBook
from partq.core.model import Cause
from partq.core.ranges import Ranges
from partq.errors import NotDeliveredError
from tests.core.batches import Batch
from tests.core.lanes.lane_model import Message, Model
from tests.core.lanes.lanes import taken

LANES = st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4])


class Lanes(RuleBasedStateMachine):
    """A broker's book, its record, and one member."""

    @initialize(
        batches=st.lists(st.lists(LANES, min_size=1, max_size=9), min_size=1, max_size=6),
        max_span=st.integers(3, 60),
        max_parked=st.integers(1, 5),
        disturbances=st.integers(0, 3),
    )
    def open(self, batches, max_span, max_parked, disturbances):
        self.disturbances_left = disturbances
        self.batches, first = [], 0
        for lanes in batches:
            self.batches.append(Batch(first, len(lanes), array("H", lanes)))
            first += len(lanes)
        self.end, self.now = first, 0.0
        self.model = Model([Message(lane) for lanes in batches for lane in lanes])
        self.bounds = {"max_span": max_span, "max_parked": max_parked}
        self.book = LaneBook(0, **self.bounds)
        self.finished = set()
        self.unreadable = set()
        self.store()
        self.start_flow()

    def start_flow(self):
        self.down, self.buffer, self.hand = [], [], []
        self.nacks, self.unconfirmed = Counter(), Counter()
        """Lanes of nacks that no flush has stored, and of those whose answer is awaited."""
        self.asking = set()
        """Lanes that one frame is to ask for."""
        self.model.owed.clear()
        self.model.owes_all = 0

    def at(self, offset):
        return self.model.messages[offset]

    # ---- what the broker sends ------------------------------------------------------------------

    def disturb(self):
        self.disturbances_left -= 1

    def batch_of(self, offset):
        return next(each for each in self.batches if offset < each.first + each.count)

    def is_stopped(self):
        waiting = self.model.due.keys() | self.model.doomed_lanes
        return len(waiting) > self.bounds["max_parked"]

    @property
    def read_and_open(self):
        return [o for o in self.model.having("open") if o < self.book._span.read_end]

    @rule(credit=st.integers(1, 12), cut=st.integers(0, 3))
    def send(self, credit, cut):
        """Send as a flow does: what is due again first, then in turn."""
        book, model = self.book, self.model
        again = book.next_again
        may_go = model.may_go()
        below = [offset for offset in may_go if offset < book.position]
        assert again == (below[0] if below else None), "what goes again is found, and the lowest"
        if again is not None:
            batch = self.batch_of(again)
            stop = max(again + 1, batch.first + batch.count - cut)
            window = book.take_again(stop, credit)
            expected = model.sent_again([offset for offset in below if offset < stop])[:credit]
            self.sent(window, expected)
            for offset in taken(window):
                self.at(offset).is_tried = self.at(offset).count > 0
            return
        while book.position < self.end:
            batch = self.batch_of(book.position)
            stop = max(book.position + 1, batch.first + batch.count - cut)
            start = book.position
            limit = min(stop, model.cursor + self.bounds["max_span"])
            expected = [offset for offset in may_go if start <= offset < limit]
            if self.is_stopped() or model.owes_all:
                expected = []
            window = book.take(batch, stop, credit)
            if window is None:
                assert not expected, "something was left to send"
                if book.position < stop:
                    assert self.is_stopped() or model.owes_all or book.position >= limit
                    return
                continue
            bad = [o for o in self.unreadable if window.start < o]
            expected = [o for o in expected if o < min(bad, default=self.end)]
            self.sent(window, expected[:credit])
            return

    def sent(self, window, expected):
        offsets = taken(window)
        assert offsets == expected[: len(offsets)]
        bad = [o for o in self.unreadable if window.start < o]
        assert len(offsets) == len([o for o in expected if o < min(bad, default=self.end)])
        assert window.messages == len(offsets)
        assert (window.start, window.stop) == (offsets[0], offsets[-1] + 1)
        assert window.redeliveries == [(o, self.at(o).count) for o in offsets if self.at(o).count]
        causes = window.causes or bytes([window.cause]) * len(offsets)
        assert list(causes) == [self.at(o).cause for o in offsets]
        for offset in offsets:
            message = self.at(offset)
            assert message.count == message.stored_count, "its count is not stored"
            due = self.promised.get(message.lane, 0.0)
            assert self.now >= due or offset not in self.given_back, "sent before its time"
            message.state, message.is_lent, message.is_tried = "held", False, False
        self.down.append(("deliver", offsets))

    @precondition(lambda self: self.model.due)
    @rule(seconds=st.integers(0, 8))
    def wait(self, seconds):
        self.now += seconds
        self.book.end_waits(self.now)
        for lane, due in list(self.model.due.items()):
            if due <= self.now:
                del self.model.due[lane]

    @precondition(lambda self: self.asking)
    @rule()
    def ask_now(self):
        """The turn of the event loop ends."""
        notice, asked = self.book.join_notices(self.asking), frozenset(self.asking)
        self.asking.clear()
        self.model.owed.update(dict.fromkeys(asked, notice))
        self.down.append(("ask", notice, asked))

    @precondition(lambda self: (self.nacks or self.model.unstored) and not self.asking)
    @rule()
    def flush(self):
        self.store()
        self.book.counts_stored(self.made)
        self.model.unstored.clear()
        self.down.append(("confirm", self.nacks))
        self.nacks = Counter()

    def store(self):
        """Write the record, as a flush does."""
        book = self.book
        self.record = (book.cursor, book.stored_acks(), book.redeliveries, dict(book.parked))
        self.made = book.counts_made
        for message in self.model.messages:
            message.stored_count = message.count
        self.stored_done = {o for o, m in enumerate(self.model.messages) if m.state == "acked"}
        self.promised = dict(self.model.due)
        self.given_back = {
            o for o, m in enumerate(self.model.messages) if m.count and m.state == "open"
        }
        assert self.stored_done <= self.finished, "stored, and nobody has done it"

    @precondition(lambda self: self.disturbances_left)
    @rule(cause=st.sampled_from([Cause.FLOW_LOST, Cause.FORCED_COMMIT, Cause.BROKER_CHANGE]))
    def lose_flow(self, cause):
        self.disturb()
        model = self.model
        held = model.having("held")
        counts = self.book.redeliveries_after_rewind()
        self.book.rewind(cause)
        if held and cause is not Cause.BROKER_CHANGE:
            self.at(held[0]).count += 1
            model.unstored.add(self.at(held[0]).lane)
            assert counts == self.book.redeliveries
        for offset in held:
            self.at(offset).state, self.at(offset).cause = "open", cause
        for message in model.messages:
            message.is_lent = False
        self.start_flow()

    @precondition(lambda self: self.disturbances_left)
    @rule()
    def fail_over(self):
        """The broker dies; another one starts from the record."""
        self.disturb()
        cursor, acks, counts, parked = self.record
        acked = decode_bits(acks, cursor) if acks else []
        self.book = LaneBook(cursor, acked, counts, parked=parked, **self.bounds)
        self.book.mark(self.end, Cause.BROKER_CHANGE)
        self.unreadable.clear()
        model = self.model
        model.doomed.clear()
        for offset, message in enumerate(model.messages):
            message.state = "acked" if offset in self.stored_done else "open"
            message.count, message.is_lent = message.stored_count, False
            message.cause = Cause.BROKER_CHANGE
        model.due = dict(self.promised)
        model.unstored.clear()
        if len(self.promised) > self.bounds["max_parked"]:
            # The rest is stored as one: all lanes wait for it.
            late = sorted(self.promised.values())[-self.bounds["max_parked"] - 1]
            assert self.book.next_due <= late
            self.now = max(self.now, late)
            assert self.book.next_again is None
            before = Batch(self.book.position)
            assert self.book.position >= self.end or self.book.take(before, self.end, 9) is None
            self.wait(0)
        self.start_flow()

    # ---- what the member does -------------------------------------------------------------------

    @precondition(lambda self: self.down)
    @rule()
    def receive(self):
        kind, *frame = self.down.pop(0)
        if kind == "deliver":
            self.buffer += frame[0]
            return
        if kind == "confirm":
            self.unconfirmed -= frame[0]
            return
        notice, lanes = frame
        mine = [o for o in self.buffer if lanes is None or self.at(o).lane in lanes]
        self.buffer = [o for o in self.buffer if o not in mine]
        assert self.book.returned(Ranges((o, o + 1) for o in mine).pairs(), notice) == len(
            [o for o in mine if self.at(o).state == "held"]
        )
        model = self.model
        for offset in mine:
            if self.at(offset).state == "held":
                self.at(offset).state = "open"
        if notice == model.owes_all:
            model.owes_all = 0
        for lane in [lane for lane, number in model.owed.items() if number == notice]:
            del model.owed[lane]

    @precondition(lambda self: self.buffer)
    @rule(data=st.data())
    def begin(self, data):
        lanes = {self.at(offset).lane for offset in self.buffer}
        lanes -= {self.at(offset).lane for offset in self.hand} | self.unconfirmed.keys()
        if not lanes:
            return
        self.begin_one(data.draw(st.sampled_from(sorted(lanes))))

    def begin_one(self, lane):
        offset = next(o for o in self.buffer if self.at(o).lane == lane)
        for lower in range(offset):
            if self.at(lower).lane == lane and self.at(offset).state != "acked":
                is_done = lower in self.finished or self.at(lower).state == "aside"
                assert is_done, f"{offset} is begun, and {lower} is not done"
        self.buffer.remove(offset)
        self.hand.append(offset)
        self.book.begin([(offset, offset + 1)], 0, self.now)

    @precondition(lambda self: self.hand)
    @rule(data=st.data())
    def ack(self, data):
        self.ack_one(data.draw(st.sampled_from(sorted(self.hand))))

    def ack_one(self, offset):
        self.hand.remove(offset)
        self.finished.add(offset)
        message = self.at(offset)
        was_held = message.state == "held"
        counts = was_held or message.is_lent or message.state == "acked"
        try:
            acked = self.book.ack(-1, [(offset, offset + 1)], 0)
        except NotDeliveredError:
            assert not counts
            self.finished.discard(offset)  # it is processed again, and must be
            return
        assert counts
        assert acked == was_held
        self.model.finish(offset)

    @precondition(lambda self: self.hand)
    @rule(data=st.data(), delay=st.integers(0, 6))
    def nack(self, data, delay):
        failed = data.draw(st.sets(st.sampled_from(sorted(self.hand)), min_size=1))
        self.hand = [offset for offset in self.hand if offset not in failed]
        held = sorted(o for o in failed if self.at(o).state == "held")
        pairs = [(o, o + 1) for o in failed]
        back = self.book.nack(pairs, 0, now=self.now, delay_s=lambda _: delay)
        assert sorted(back.offsets) == held
        nacked = Counter({self.at(offset).lane for offset in failed})
        self.nacks.update(nacked)
        self.unconfirmed.update(nacked)
        self.ask(back, self.model.take_back(held, Cause.NACK, self.now + delay))

    def ask(self, back, lanes):
        assert (back.rewound_from, back.asked) == (None, lanes)
        assert bool(back.notice) == bool(lanes)
        if lanes:
            self.model.owed.update(dict.fromkeys(lanes, back.notice))
            self.asking |= lanes

    @precondition(lambda self: self.hand and not self.unconfirmed)
    @rule(delay=st.integers(0, 6), later=st.integers(0, 9))
    def time_out(self, delay, later):
        self.wait(later)
        back = self.book.time_out(self.now - 5, now=self.now, delay_s=lambda _: delay)
        late = sorted(back.offsets)
        assert set(late) <= {o for o in self.hand if self.at(o).state == "held"}
        lanes = self.model.take_back(late, Cause.ACK_TIMEOUT, self.now + delay)
        for offset in late:
            self.at(offset).is_lent = True
        self.ask(back, lanes)

    @precondition(lambda self: self.disturbances_left)
    @rule()
    def ask_for_all(self):
        self.disturb()
        notice = self.book.ask_back()
        self.model.owes_all = notice
        self.down.append(("ask", notice, None))

    # ---- what else there is ---------------------------------------------------------------------

    @precondition(lambda self: self.disturbances_left)
    @rule(data=st.data(), length=st.integers(1, 6))
    def discard(self, data, length):
        self.disturb()
        start = data.draw(st.integers(0, self.end - 1))
        stop = min(self.end, start + length)
        held = [o for o in range(start, stop) if self.at(o).state == "held"]
        assert self.book.discard([(start, stop)]) == len(held)
        parted = {o for o in range(start, stop) if self.at(o).state != "acked"}
        for offset in sorted(parted):
            self.finished.add(offset)
        failed = [o for o in parted if self.at(o).state == "open" and self.at(o).count]
        known = {o for o in failed if o < self.book._span.read_end}
        lanes = {self.at(o).lane for o in known}
        for offset in parted:
            self.at(offset).state, self.at(offset).count = "acked", 0
            self.at(offset).is_lent = False
        others = {m.lane for m in self.model.messages if m.count}
        for lane in lanes - others:
            self.model.due.pop(lane, None)

    @precondition(lambda self: self.disturbances_left and self.read_and_open)
    @rule(data=st.data())
    def doom(self, data):
        """A message is to become a dead letter: its lane waits."""
        self.disturb()
        offset = data.draw(st.sampled_from(self.read_and_open))
        self.book.doom([offset])
        self.model.doomed.add(offset)

    @precondition(lambda self: self.model.doomed)
    @rule()
    def spare(self):
        """It is stored as one."""
        offset = min(self.model.doomed)
        self.book.discard([(offset, offset + 1)])
        if self.at(offset).state != "acked":
            self.model.finish(offset)
        self.finished.add(offset)
        self.book.spare(offset)
        self.model.doomed.remove(offset)

    @precondition(lambda self: self.disturbances_left and self.model.having("open"))
    @rule(data=st.data())
    def pass_over(self, data):
        self.disturb()
        offset = data.draw(st.sampled_from(self.model.having("open")))
        assert self.book.pass_over(offset, offset + 1) == [(offset, offset + 1)]
        self.at(offset).state, self.at(offset).is_lent = "aside", False
        self.unreadable.add(offset)

    @precondition(lambda self: self.disturbances_left)
    @rule(data=st.data())
    def ack_what_it_does_not_have(self, data):
        self.disturb()
        offset = data.draw(st.integers(0, self.end + 3))
        is_known = offset < self.end
        if is_known and (self.at(offset).state in ("held", "acked") or self.at(offset).is_lent):
            return
        with pytest.raises(NotDeliveredError, match="ack: 1 of the messages"):
            self.book.ack(-1, [(offset, offset + 1)], 0)

    def teardown(self):
        """From wherever it is, all can be done with and stored: nothing is stuck."""
        if not hasattr(self, "book"):
            return
        for offset in self.model.having("aside"):
            self.book.discard([(offset, offset + 1)])
            self.model.finish(offset)
            self.finished.add(offset)
        while self.model.doomed:
            self.spare()
        for _ in range(3 * self.end + 20):
            self.wait(9)
            if self.asking:
                self.ask_now()
            self.flush()
            while self.down:
                self.receive()
            for offset in list(self.hand):
                self.ack_one(offset)
            while self.buffer:
                self.begin_one(self.at(self.buffer[0]).lane)
                self.ack_one(self.hand[0])
            self.send(12, 0)
        assert not self.model.having("open") + self.model.having("held")

    # ---- what is true ---------------------------------------------------------------------------

    @invariant()
    def the_book_says_what_the_model_says(self):
        book, model = self.book, self.model
        assert book.cursor == model.cursor
        assert book.in_flight == len(model.having("held"))
        assert [o for run in book.delivered(0, self.end) for o in range(*run)] == model.having(
            "held"
        )
        acked = [o for o in model.having("acked") if o >= model.cursor]
        assert [o for run in book.acked_pairs() for o in range(*run)] == acked
        undone = [o for o in range(self.end) if self.at(o).state != "acked"]
        assert [o for run in book.undone(0, self.end) for o in range(*run)] == undone
        stored = book.stored_acks()
        assert (decode_bits(stored, book.cursor) if stored else []) == book.acked_pairs()
        counts = {o: m.count for o, m in enumerate(model.messages) if m.count}
        assert book.redeliveries == counts
        assert len(book.parked) <= self.bounds["max_parked"] + 1
        if len(model.due) <= self.bounds["max_parked"]:
            assert book.parked == model.due
        assert book.delayed == len(model.due)


Lanes.TestCase.settings = settings(deadline=None, max_examples=100, stateful_step_count=40)
test_any_order_of_events = Lanes.TestCase
