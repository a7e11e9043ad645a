"""A book of several shares against the rule of delivery, one object per message.

Members obey the protocol, over channels that keep the order of frames and end with their flow.
Checked at each step: each share is sent exactly what the rule says (nothing is stuck, nothing too
early); a member begins a message only when all lower ones of its lane are finished, and while no
other member that is connected has one of the lane in hand which the book says it has.
"""

import random
from array import array
from dataclasses import dataclass, field

import pytest

from partq.core.lanes.shared_book import SharedBook
from partq.core.model import SLOT_COUNT, Cause
from partq.errors import NotDeliveredError
from tests.core.batches import Batch
from tests.core.lanes.lane_model import Message
from tests.core.lanes.lanes import taken

LANES = 4
NAMES = "abc"


@dataclass(eq=False)
class Member:
    """A member with a flow: its share, the frames under way, and what it has."""

    number: int
    book: object
    down: list = field(default_factory=list)
    up: list = field(default_factory=list)
    buffer: list = field(default_factory=list)
    """What came and has not begun: (offset, number of its copy)."""
    hand: list = field(default_factory=list)
    owed: dict = field(default_factory=dict)
    """Lane → notice that it was asked by."""
    nacks: list = field(default_factory=list)
    """Lanes of its nacks that have no answer: it begins nothing of them."""


class Shares:
    """The books of a partition, its record, and members that come and go."""

    def __init__(self, chance, steps):
        self.chance, self.steps = chance, steps
        self.batches, first = [], 0
        for _ in range(chance.randint(1, 5)):
            lanes = [chance.randrange(LANES) for _ in range(chance.randint(1, 6))]
            self.batches.append(Batch(first, len(lanes), array("H", lanes)))
            first += len(lanes)
        self.end, self.now, self.disturbances = first, 0.0, chance.randint(0, 8)
        self.messages = [Message(lane) for batch in self.batches for lane in batch.slots]
        self.held = {}
        """Offset → (member, number of the copy)."""
        self.due, self.unstored, self.finished = {}, {}, set()
        self.tried = {}
        """Lane → what of it was sent once more as it has failed: (offset, how it was held)."""
        self.answers = []
        """Of nacks, which wait for a flush: (member, lane)."""
        self.max_span = chance.randint(4, 40)
        self.book = SharedBook(0, max_span=self.max_span)
        self.owners = {lane: chance.choice(NAMES) for lane in range(LANES)}
        self.members = {}
        for name in NAMES:
            self.bind(name)

    def run(self):
        """Have anything happen, in any order; then, undisturbed, everything comes to its end."""
        for _ in range(self.steps):
            (step,) = self.chance.choices(list(STEPS), STEPS.values())
            getattr(self, step)(self.chance.choice(NAMES))
            self.check()
        self.disturbances = 0
        for _ in range(20 * self.end + 100):
            if self.cursor == self.end:
                return
            self.wait("")
            self.flush("")
            for name in NAMES:
                self.bind(name)
                for step in ("send", "receive", "process", "finish", "hear"):
                    getattr(self, step)(name)
            self.check()
        raise AssertionError("stuck")

    # ---- the rule -------------------------------------------------------------------------------

    @property
    def cursor(self):
        states = [message.state for message in self.messages]
        return next((o for o, state in enumerate(states) if state != "acked"), self.end)

    def is_blocked(self, lane, member):
        holders = {self.held[o][0] for o in self.held if self.messages[o].lane == lane}
        return (
            lane in self.due
            or lane in self.unstored
            or self.is_tried(lane)
            or lane in member.owed
            or bool(holders - {member})
        )

    def is_tried(self, lane):
        offset, held = self.tried.get(lane, (-1, ()))
        return offset >= 0 and self.held.get(offset) == held

    def may_go(self, name):
        member = self.members[name]
        return [
            offset
            for offset, message in enumerate(self.messages)
            if message.state == "open"
            and self.owners[message.lane] == name
            and not self.is_blocked(message.lane, member)
            and offset < self.cursor + self.max_span
        ]

    # ---- the broker -----------------------------------------------------------------------------

    def assign(self):
        table = bytearray(SLOT_COUNT)
        for lane, name in self.owners.items():
            if name in self.members:
                table[lane] = self.members[name].number
        asked = self.book.assign(bytes(table))
        by_number = {member.number: member for member in self.members.values()}
        for number, (lanes, notice) in asked.items():
            self.ask_back(by_number[number], lanes, notice)

    def ask_back(self, member, lanes, notice):
        member.owed.update(dict.fromkeys(lanes, notice))
        member.down.append(("ask", set(lanes), notice))

    def batch_of(self, offset):
        return next(each for each in self.batches if offset < each.first + each.count)

    def send(self, name):
        """Send what one share may get, as far as credit goes; all that may go is found."""
        member, credit = self.members.get(name), self.chance.randint(1, 9)
        if member is None:
            return
        book, sent = member.book, []
        while credit > 0:
            expected = self.may_go(name)
            again = book.next_again
            if again is not None:
                batch = self.batch_of(again)
                window = book.take_again(batch.first + batch.count, credit)
            elif book.position < self.end:
                batch = self.batch_of(book.position)
                before, stop = book.position, batch.first + batch.count
                window = book.take(batch, stop, credit)
                if window is None and before <= book.position < stop:
                    break
            else:
                break
            for offset in taken(window) if window else ():
                assert offset in expected, "it may not be sent now"
                message = self.messages[offset]
                message.state, message.is_lent = "held", False
                self.held[offset] = (member, book.number)
                if again is not None and message.count:
                    self.tried[message.lane] = (offset, self.held[offset])
                member.down.append(("deliver", offset, book.number))
                sent.append(offset)
                credit -= 1
        expected = self.may_go(name)
        assert credit == 0 or not expected, "something was left"
        for lane in range(LANES):
            of_lane = [offset for offset in sent if self.messages[offset].lane == lane]
            assert of_lane == sorted(of_lane)
            left = [o for o in expected if self.messages[o].lane == lane]
            assert not of_lane or not left or of_lane[-1] < left[0], "a lower one comes first"

    def wait(self, _):
        self.now += self.chance.randint(0, 5)
        self.book.end_waits(self.now)
        self.due = {lane: due for lane, due in self.due.items() if due > self.now}

    def flush(self, _):
        self.book.counts_stored(self.book.counts_made)
        self.unstored.clear()
        for member, lane in self.answers:
            member.down.append(("answer", lane, 0))
        self.answers.clear()

    def hear(self, name):
        """Take one frame of a member."""
        member = self.members.get(name)
        if member is None or not member.up:
            return
        kind, offsets, number = member.up.pop(0)
        held = [o for o in offsets if self.held.get(o) == (member, number)]
        if kind == "ack":
            self.hear_ack(member, offsets, number, held)
        elif kind == "nack":
            (offset,) = offsets
            taken_back = member.book.nack([(offset, offset + 1)], number, now=self.now,
                                          delay_s=lambda _: 3.0)  # fmt: skip
            assert taken_back.messages == len(held)
            self.take_back(member, held, taken_back, delay_s=3.0)
            self.answers.append((member, self.messages[offset].lane))
        else:
            for lane in [lane for lane, notice in member.owed.items() if notice == number]:
                del member.owed[lane]
            mine = [offset for offset in offsets if self.held.get(offset, "")[:1] == (member,)]
            assert member.book.returned([(o, o + 1) for o in offsets], number) == len(mine)
            for offset in mine:
                self.messages[offset].state = "open"
                del self.held[offset]

    def hear_ack(self, member, offsets, number, held):
        (offset,) = offsets
        message = self.messages[offset]
        lower = [o for o in range(offset) if self.messages[o].lane == message.lane]
        is_late = message.is_lent is member and all(
            self.messages[o].state == "acked" for o in lower
        )
        counts = bool(held) or is_late or message.state == "acked"
        try:
            member.book.ack(-1, [(offset, offset + 1)], number)
            assert counts, "the ack of another copy"
        except NotDeliveredError:
            assert not counts
        if not counts or message.state == "acked":
            return
        if message.state == "open" and message.count:
            others = [o for o, m in enumerate(self.messages) if m.lane == message.lane and m.count
                      and m.state != "acked" and o != offset]  # fmt: skip
            if not others:
                self.due.pop(message.lane, None)
        message.state, message.is_lent, message.count = "acked", False, 0
        self.held.pop(offset, None)

    def take_back(self, member, offsets, taken_back, *, delay_s):
        for offset in offsets:
            message = self.messages[offset]
            message.state, message.count = "open", message.count + 1
            del self.held[offset]
            self.unstored[message.lane] = True
            self.due[message.lane] = max(self.now + delay_s, self.due.get(message.lane, 0.0))
        if taken_back.asked:
            self.ask_back(member, taken_back.asked, taken_back.notice)

    # ---- what strikes ---------------------------------------------------------------------------

    def disturb(self):
        """Say whether something may strike now."""
        self.disturbances -= 1
        return self.disturbances >= 0

    def move(self, name):
        if not self.disturb():
            return
        self.owners[self.chance.randrange(LANES)] = name
        self.assign()

    def lose(self, name):
        if name not in self.members or not self.disturb():
            return
        member = self.members.pop(name)
        self.book.close_share(member.number, Cause.FLOW_LOST)
        mine = sorted(o for o, (holder, _) in self.held.items() if holder is member)
        for offset in mine:
            self.messages[offset].state = "open"
            del self.held[offset]
        if mine:
            self.messages[mine[0]].count += 1
            self.unstored[self.messages[mine[0]].lane] = True
        for message in self.messages:
            message.is_lent = False if message.is_lent is member else message.is_lent
        self.assign()

    def bind(self, name):
        if name in self.members:
            return
        self.members[name] = Member(*self.book.open_share())
        self.assign()

    def force(self, _):
        lanes = set(self.book.draining)
        if not lanes or not self.disturb():
            return
        by_number = {member.number: member for member in self.members.values()}
        for number, messages in self.book.force(lanes).items():
            member = by_number[number]
            mine = sorted(o for o, (holder, _) in self.held.items()
                          if holder is member and self.messages[o].lane in lanes)  # fmt: skip
            assert messages == mine
            for lane in lanes:
                of_lane = [o for o in mine if self.messages[o].lane == lane]
                for offset in of_lane:
                    self.messages[offset].state = "open"
                    del self.held[offset]
                if of_lane:
                    self.messages[of_lane[0]].count += 1
                    self.unstored[lane] = True

    def time_out(self, name):
        """All that the broker knows as begun has taken too long."""
        member = self.members.get(name)
        if member is None or not member.hand or not self.disturb():
            return
        for offset, number in member.hand:
            member.book.begin([(offset, offset + 1)], number, self.now)
        begun = [o for o, number in member.hand if self.held.get(o) == (member, number)]
        found = member.book.time_out(self.now, now=self.now, delay_s=lambda _: 1.0)
        assert set(begun) >= set(found.offsets)
        for offset in found.offsets:
            self.messages[offset].is_lent = member
        self.take_back(member, found.offsets, found, delay_s=1.0)

    # ---- members --------------------------------------------------------------------------------

    def receive(self, name):
        member = self.members.get(name)
        if member is None or not member.down:
            return
        kind, what, number = member.down.pop(0)
        if kind == "deliver":
            member.buffer.append((what, number))
            return
        if kind == "answer":
            member.nacks.remove(what)
            return
        dropped = [each for each in member.buffer if self.messages[each[0]].lane in what]
        member.buffer = [each for each in member.buffer if each not in dropped]
        member.up.append(("returned", sorted(offset for offset, _ in dropped), number))

    def process(self, name):
        """Begin a message, any key's, the lowest of it first."""
        member = self.members.get(name)
        if member is None or not member.buffer:
            return
        offset, number = self.chance.choice(member.buffer)
        lane = self.messages[offset].lane
        lower = [each for each in member.buffer if self.messages[each[0]].lane == lane]
        if (
            lower[0] != (offset, number)
            or lane in member.nacks
            or any(self.messages[o].lane == lane for o, _ in member.hand)
        ):
            return
        member.buffer.remove((offset, number))
        if self.held.get(offset) == (member, number):
            before = [o for o in range(offset) if self.messages[o].lane == lane]
            assert all(o in self.finished for o in before), "order"
            for other in self.members.values():
                for at_hand, copy in other.hand:
                    assert (
                        other is member
                        or self.messages[at_hand].lane != lane
                        or self.held.get(at_hand) != (other, copy)
                    ), "exclusivity"
        member.hand.append((offset, number))

    def finish(self, name):
        member = self.members.get(name)
        if member is None or not member.hand:
            return
        offset, number = member.hand.pop(0)
        if self.chance.random() < 0.3 and self.disturb():
            member.up.append(("nack", [offset], number))
            member.nacks.append(self.messages[offset].lane)
            return
        self.finished.add(offset)
        member.up.append(("ack", [offset], number))

    # ---- always ---------------------------------------------------------------------------------

    def check(self):
        assert self.book.cursor == self.cursor
        assert self.book.in_flight == len(self.held)
        for member in self.members.values():
            mine = [o for o, (holder, _) in self.held.items() if holder is member]
            assert member.book.in_flight == len(mine)
        assert self.book.redeliveries == {
            o: m.count for o, m in enumerate(self.messages) if m.count
        }
        waiting = {
            self.messages[o].lane
            for o, (holder, _) in self.held.items()
            if self.members.get(self.owners[self.messages[o].lane]) is not holder
        }
        assert set(self.book.draining) == waiting


STEPS = {
    "send": 6,
    "wait": 2,
    "flush": 2,
    "hear": 6,
    "receive": 8,
    "process": 6,
    "finish": 5,
    "move": 2,
    "lose": 0.3,
    "bind": 2,
    "force": 1,
    "time_out": 1,
}
"""Each with its weight."""


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_shares_are_sent_what_the_rule_says(first):
    for seed in range(first, first + 100):
        try:
            Shares(random.Random(seed), 120).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
