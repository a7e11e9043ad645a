"""What the senders of a deterministic producer leave behind a change of the layout."""

import pytest

from partq.client.produce.batching import BatchLimits
from partq.client.produce.buffer_pool import BufferPool
from partq.client.produce.deterministic.crossing import FixedCrossing
from partq.client.produce.deterministic.ended_series import EndedSeries
from partq.client.produce.deterministic.stored_messages import StoredMessages
from partq.client.produce.partition_sender import PartitionSender
from partq.client.producer_stats import ProducerTally
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.errors import NotStoredError
from partq.wire import batch
from partq.wire.batch import Codec, Message
from tests.client.produce.deterministic.test_stored_messages import changed, state_of
from tests.client.produce.test_slots_leave import DividedFate

LIMITS = BatchLimits(max_count=2, max_bytes=1000, codec=Codec.NONE)
TWO = Layout.first(2)
THREE = changed(TWO, 3)
P, Q, NEW = PartitionId(1, 0), PartitionId(1, 1), PartitionId(2, 2)


def slot_of(before, after):
    return next(
        s for s in range(2**16) if (TWO.partition_of(s), THREE.partition_of(s)) == (before, after)
    )


class Stage:
    """A producer that has sent messages by a layout of two partitions."""

    def __init__(self):
        self.pool = BufferPool(max_count=100, max_bytes=10_000)
        self.stored = StoredMessages("job", state_of(TWO))
        tally = ProducerTally(lambda: 0.0)
        ended = EndedSeries(None, "job", lambda: 0.0)
        self.crossing = FixedCrossing(
            None, "job", self.stored, ended, buffer_pool=self.pool, tally=tally, clock=lambda: 0.0
        )
        self.senders = {
            each: PartitionSender(
                each, producer="job", fixed_generation=1, limits=LIMITS,
                next_producer=lambda _: None, give_back=self.pool.give_back, tally=tally,
                are_numbers_fixed=True,
            )
            for each in (P, Q)
        }  # fmt: skip
        self.fate = DividedFate()
        self.count = 0

    def send(self, *slots):
        """Send messages whose values are their places."""
        for slot in slots:
            (encoded,) = batch.encode_messages([Message("k", b"%d" % self.count)])
            assert self.pool.try_take(1, len(encoded))
            sender = self.senders[TWO.partition_of(slot)]
            sender.add([encoded], [slot], self.fate, 9.0, 0, [self.count])
            self.count += 1

    def over(self, **due):
        ended = {each: TWO.slots(partition) for partition, each in self.senders.items()}
        found = self.crossing.over(state_of(THREE, **due), self.senders.values(), ended, LIMITS)
        return found.broken, {
            partition: [int(m.value) for each in batches for m in batch.decode(each.data)]
            for partition, batches in found.batches.items()
            if batches
        }


@pytest.fixture
def stage():
    return Stage()


def test_messages_of_several_partitions_are_numbered_in_the_order_of_their_sending(stage):
    stage.send(*[slot_of(P, NEW), slot_of(Q, NEW), slot_of(P, P)] * 3)
    broken, found = stage.over()
    assert (broken, found) == ({}, {NEW: [0, 1, 3, 4, 6, 7], P: [2, 5, 8]})
    assert stage.pool.pending_count == 9


def test_what_is_stored_has_its_answer_and_the_rest_goes_on(stage):
    stage.send(*[slot_of(P, NEW), slot_of(Q, NEW), slot_of(P, P)] * 3)
    sender = stage.senders[P]
    sender.make_due()
    assert sender.take(1, 0.0).count == 2
    sender.lost()
    # The connection was lost with one batch under way; another process has stored one more.
    broken, found = stage.over(p1=3)
    assert (broken, found) == ({}, {NEW: [1, 4, 6, 7], P: [5, 8]})
    assert stage.fate.told == [(-1, 1)] * 3
    assert stage.pool.pending_count == 6
    assert not sender.has_work


def test_partitions_with_slots_of_one_that_has_failed_take_no_message_either(stage):
    stage.send(slot_of(P, NEW), slot_of(Q, NEW))
    stage.senders[P].make_due()
    stage.senders[P].expire(9.0)
    error = stage.senders[P].broken
    assert isinstance(error, NotStoredError)
    assert stage.over()[0] == {P: error, NEW: error}


def test_nothing_that_has_moved_fails_before_what_is_in_front_of_it(stage):
    """Or what comes behind it would get its number."""
    stage.send(*[slot_of(P, P)] * 3)
    sender = stage.senders[P]
    batches = sender.remove_window()
    batches[1].deadline = 5.0
    sender.adopt(batches)
    sender.expire(5.0)
    assert stage.fate.told == []
    sender.expire(9.0)
    assert stage.fate.told == [(NotStoredError, 1)] * 3
