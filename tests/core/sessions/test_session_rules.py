"""Sessions against the rule of delivery: any order of accepts, acks, nacks, closes and losses.

At each step a session is one member's, what it is sent is the next of the session, and nothing of
it is with anybody else. In the end everything comes to its end.
"""

import random

import pytest

from partq.core.model import Cause
from partq.core.sessions.session_book import SessionBook
from tests.core.batches import Batch

SESSIONS = "abcd"
SLOT = {"a": 7, "b": 7, "c": 8, "d": 9}
"""Two sessions have one slot, and a third the slot behind it."""


class World:
    """A partition, its record, and the locks that members have."""

    def __init__(self, chance):
        self.chance = chance
        self.log = []
        self.batches = []
        self.now = 0.0
        self.book = SessionBook(0, max_span=chance.choice([6, 50]))
        self.locks = {}
        """Session → (number of the share, its book, what the member has: offset → its copy)."""
        self.orphans = set()
        """Sessions of members that are not connected, and whose locks are not over."""
        self.done = set()
        self.due = {}
        """Session → when it may be sent again."""
        self.store()

    def store(self):
        """A flush: what a broker that claims the partition finds."""
        self.record = (self.book.cursor, self.book.acked_pairs(), self.book.redeliveries)
        self.parked, self.stored = dict(self.book.parked), set(self.done)
        self.stored_due = dict(self.due)
        self.book.counts_stored(self.book.counts_made)

    def publish(self):
        sessions = [self.chance.choice(SESSIONS) for _ in range(self.chance.randint(1, 5))]
        slots = [SLOT[each] for each in sessions]
        self.batches.append((Batch(len(self.log), len(sessions), slots), sessions))
        self.log += sessions

    def read(self):
        for batch, sessions in self.batches:
            if batch.first <= self.book.read_end < batch.first + batch.count:
                if self.book.may_read:
                    self.book.read(batch, sessions)
                return

    def accept(self):
        session = self.book.next_free([*self.locks, *self.orphans])
        if session is None:
            return
        assert session not in {*self.locks, *self.orphans}, "locked"
        assert self.now >= self.due.get(session, 0.0), "before its time"
        number, share = self.book.open_share()
        self.book.claim(session, number)
        self.locks[session] = (number, share, {})

    def send(self):
        for session, (_, share, held) in self.locks.items():
            while (start := share.next_again) is not None:
                window = share.take_again(start + 1, self.chance.randint(1, 3))
                if window is None:
                    break
                offset = window.start
                assert self.log[offset] == session, "of another session"
                assert offset not in self.done, "done"
                assert self.now >= self.due.get(session, 0.0), "before its time"
                lower = [o for o in range(offset) if self.log[o] == session]
                assert all(o in self.done or o in held for o in lower), "out of order"
                held[offset] = share.number
                if self.chance.random() < 0.3:
                    return

    def pick(self):
        held = [(s, o) for s, (_, _, found) in self.locks.items() for o in found]
        return self.chance.choice(held) if held else (None, None)

    def ack(self):
        session, offset = self.pick()
        if session is not None:
            _, share, held = self.locks[session]
            assert share.ack(-1, [(offset, offset + 1)], held.pop(offset)) == 1
            self.done.add(offset)

    def nack(self):
        session, offset = self.pick()
        if session is None:
            return
        _, share, held = self.locks[session]
        delay_s = self.chance.choice([0.0, 15.0])
        taken = share.nack(
            [(offset, offset + 1)], held.pop(offset), now=self.now, delay_s=lambda _: delay_s
        )
        self.due[session] = max(self.due.get(session, 0.0), self.now + delay_s)
        if taken.asked:  # the member gives back all that it has of the session
            share.returned([(o, o + 1) for o in held], taken.notice)
            held.clear()

    def close(self):
        """A member is done with a session, or its lock is over."""
        if not self.locks:
            return
        session = self.chance.choice(sorted(self.locks))
        number, share, held = self.locks[session]
        cause = self.chance.choice([Cause.NONE, Cause.FORCED_COMMIT, Cause.FLOW_LOST])
        self.book.unclaim(session)
        if cause is Cause.NONE:
            assert share.returned(share.not_begun([]), 0) == len(held)
        self.book.close_share(number, cause)
        del self.locks[session]
        if cause is Cause.FLOW_LOST:
            self.orphans.add(session)

    def end_lock(self):
        """The lock of a member that is not connected is over."""
        self.orphans.discard(self.chance.choice(SESSIONS))

    def change_broker(self):
        cursor, acked, redeliveries = self.record
        parked = dict(self.parked)
        self.book = SessionBook(
            cursor, acked, redeliveries, parked=parked, max_span=self.book.max_span
        )
        self.locks, self.done, self.due = {}, set(self.stored), dict(self.stored_due)
        self.orphans.clear()

    def wait(self):
        self.now += 2.0
        self.book.end_waits(self.now)

    def run(self, steps):
        kinds = {
            self.publish: 3,
            self.read: 6,
            self.accept: 5,
            self.send: 8,
            self.ack: 8,
            self.nack: 2,
            self.close: 2,
            self.store: 6,
            self.change_broker: 1,
            self.end_lock: 2,
            self.wait: 2,
        }
        for _ in range(steps):
            (step,) = self.chance.choices(list(kinds), kinds.values())
            step()
        self.orphans.clear()
        for _ in range(20 * len(self.log) + 50):
            for step in (self.store, self.wait, self.read, self.accept, self.send, self.ack):
                step()
            if self.chance.random() < 0.3:
                self.close()
            self.end_lock()
        assert self.book.cursor == len(self.log), "something is stuck"


@pytest.mark.parametrize("seed", range(60))
def test_a_session_is_one_members_and_in_order(seed):
    World(random.Random(seed)).run(80)
