"""A partition sender when slots leave its partition: what is sent, what goes, what stays."""

import pytest

from partq.client.produce.batching import BatchLimits
from partq.client.produce.partition_sender import PartitionSender
from partq.client.producer_stats import ProducerTally
from partq.core.model import PartitionId
from partq.errors import NotStoredError, OutcomeUnknownError
from partq.wire import batch
from partq.wire.batch import Codec, Message
from tests.client.produce.test_partition_sender import LATER, TIMEOUT_S, Fate, Line

OLD, NEW = PartitionId(1, 0), PartitionId(2, 2)
STAYS, GOES = 7, 9


class DividedFate(Fate):
    def divided(self, partition, destinations):
        return dict.fromkeys(destinations, self)


class LeavingLine(Line):
    """A partition sender, and that of the partition that takes some of its slots."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.fate = DividedFate()
        self.successor = PartitionSender(
            NEW, producer="first", first=0,
            limits=BatchLimits(max_count=2, max_bytes=1000, codec=Codec.NONE),
            next_producer=lambda _: None, give_back=lambda count, _: None,
            tally=ProducerTally(lambda: 0.0),
        )  # fmt: skip
        self.successor.max_in_flight = 5

    def add_slots(self, *slots, now=0.0):
        """Add a message for each slot, whose value is its place among all."""
        for slot in slots:
            self.count = getattr(self, "count", 0) + 1
            encoded = batch.encode_messages([Message("k", b"%d" % (self.count - 1))])
            self.partition_sender.add(encoded, [slot], self.fate, now + TIMEOUT_S, 0)
        self.partition_sender.make_due()
        return self

    def move(self):
        assert self.partition_sender.may_give_away
        parts = self.partition_sender.give_away(lambda slot: OLD if slot == STAYS else NEW)
        self.successor.adopt(parts.pop(NEW, []))
        assert parts == {}

    def sent_on(self, now=0.0):
        """Send all that can be sent to the successor."""
        out = []
        while (taken := self.successor.take(100 + len(out), now)) is not None:
            out.append((taken.first, [message.value for message in batch.decode(taken.data)]))
        return out


def mixed_line(**kwargs):
    """Three batches: (stays, goes), (goes, stays), (stays)."""
    return LeavingLine(**kwargs).add_slots(STAYS, GOES, GOES, STAYS, STAYS)


def test_what_waits_is_cut_by_slot_when_the_partition_refuses_it():
    line = mixed_line()
    line.sent()
    line.refused(1, "stale_generation", now=0.0)
    assert not line.partition_sender.may_give_away, "two answers are under way"
    line.refused(2, "out_of_sequence", due=0)
    line.refused(3, "out_of_sequence", due=0)
    assert line.sent(LATER) == [], "nothing is sent before the slots have moved"
    line.move()
    assert line.sent() == [(4, 0, [b"0"]), (5, 1, [b"3"]), (6, 2, [b"4"])]
    assert line.sent_on() == [(0, [b"1"]), (1, [b"2"])]
    assert line.partition_sender.producer == "first", "no copy is under way"


def test_numbers_go_on_where_the_broker_expects_them():
    line = mixed_line(first=20)
    line.sent()
    line.partition_sender.stored(1, 50)
    line.refused(2, "stale_generation")
    line.refused(3, "out_of_sequence", due=22)
    line.move()
    assert line.sent(LATER) == [(4, 22, [b"3"]), (5, 23, [b"4"])]
    line.add_slots(STAYS)
    assert line.sent(LATER) == [(6, 24, [b"5"])]


def test_what_stays_was_never_sent_under_its_new_number():
    """By the age of a number the store tells what it has forgotten from what it never had."""
    line = LeavingLine(max_count=1).add_slots(GOES, STAYS)
    line.sent(0.0)
    line.refused(1, "stale_generation")
    line.refused(2, "out_of_sequence", due=0)
    line.move()
    taken = line.partition_sender.take(3, 5.0)
    assert (taken.first, taken.age_ms) == (0, 0)


def test_what_gathers_moves_too():
    line = LeavingLine(max_count=10).add_slots(GOES, STAYS)
    line.partition_sender.is_leaving = True
    assert line.sent() == []
    line.move()
    assert (line.sent(), line.sent_on()) == ([(1, 0, [b"1"])], [(0, [b"0"])])
    assert not line.partition_sender.has_open


def test_a_head_in_doubt_is_sent_again_by_itself_until_its_answer_is_definite():
    line = mixed_line()
    line.sent()
    line.partition_sender.lost()
    line.partition_sender.is_leaving = True
    assert not line.partition_sender.may_give_away
    assert line.sent() == [(4, 0, [b"0", b"1"])]
    line.partition_sender.stored(4, 50)
    assert not line.partition_sender.may_give_away, "the next one may be stored, too"
    assert line.sent() == [(5, 2, [b"2", b"3"])]
    line.refused(5, "not_stored")
    assert not line.partition_sender.may_give_away, "another copy may be stored yet"
    assert line.sent(LATER) == [(6, 2, [b"2", b"3"])]
    line.refused(6, "stale_generation")
    line.move()
    assert line.fate.told == [(50, 1), (51, 1)]
    assert line.partition_sender.producer == "second", "copies may be under way"
    assert line.sent(LATER) == [(7, 0, [b"3"]), (8, 1, [b"4"])]
    assert line.sent_on() == [(0, [b"2"])]


def test_what_was_in_doubt_and_goes_leaves_no_number_to_what_comes():
    line = LeavingLine(max_count=1).add_slots(GOES)
    line.sent()
    line.partition_sender.lost()
    line.sent()
    line.refused(2, "stale_generation")
    line.move()
    line.add_slots(STAYS)
    assert (line.partition_sender.producer, line.sent(LATER)) == ("second", [(3, 0, [b"1"])])


def test_a_move_that_no_message_waits_for_changes_no_number():
    line = LeavingLine(max_count=1, first=3).add_slots(STAYS, STAYS)
    line.partition_sender.is_leaving = True
    line.move()
    assert line.partition_sender.producer == "first"
    assert line.sent() == [(1, 3, [b"0"]), (2, 4, [b"1"])]
    assert line.sent_on() == []


def test_what_moves_is_new_to_the_successor_and_has_the_time_that_is_left():
    line = LeavingLine(max_count=1).add_slots(GOES, GOES, now=0.0)
    line.sent()
    line.refused(1, "stale_generation")
    line.refused(2, "out_of_sequence", due=0)
    line.move()
    taken = line.successor.take(100, 5.0)
    assert (taken.age_ms, taken.may_be_stored) == (0, False)
    line.successor.lost()
    line.successor.expire(TIMEOUT_S)
    assert line.fate.told == [(OutcomeUnknownError, 1), (NotStoredError, 1)]


def test_what_moves_behind_messages_with_more_time_is_not_late():
    line = LeavingLine(max_count=1).add_slots(GOES, now=0.0)
    encoded = batch.encode_messages([Message("k", b"later")])
    line.successor.add(encoded, [1], line.fate, TIMEOUT_S + 50.0, 0)
    line.partition_sender.is_leaving = True
    line.move()
    line.successor.expire(TIMEOUT_S)
    assert line.fate.told == [(NotStoredError, 1)]
    line.successor.add(encoded, [1], line.fate, TIMEOUT_S + 50.0, 0)
    line.successor.make_due()
    assert line.sent_on() == [(0, [b"later"]), (1, [b"later"])]


def test_what_has_moved_and_was_sent_is_not_said_to_be_not_stored():
    """Its deadline ends before that of what is ahead of it: it may be stored all the same."""
    line = LeavingLine(max_count=1).add_slots(GOES)
    encoded = batch.encode_messages([Message("k", b"later")])
    line.successor.add(encoded, [1], line.fate, TIMEOUT_S + 50.0, 0)
    line.partition_sender.is_leaving = True
    line.move()
    assert line.sent_on() == [(0, [b"later"]), (1, [b"0"])]
    line.successor.expire(TIMEOUT_S)
    assert line.fate.told == []


def test_fixed_numbers_end_with_a_sentence_when_slots_leave():
    line = LeavingLine(ids=())
    line.partition_sender = PartitionSender(
        OLD, producer="job", first=0,
        limits=BatchLimits(max_count=2, max_bytes=1000, codec=Codec.NONE),
        next_producer=lambda _: None, give_back=lambda count, _: None,
        tally=ProducerTally(lambda: 0.0), are_numbers_fixed=True,
        ends_at_change=True,
    )  # fmt: skip
    line.partition_sender.max_in_flight = 5
    line.add_slots(STAYS, GOES, STAYS)
    assert len(line.sent()) == 2
    line.refused(1, "stale_generation")
    assert line.fate.told == [(NotStoredError, 1)] * 3, "nothing is stored behind a refused number"
    broken = line.partition_sender.broken
    assert isinstance(broken, NotStoredError)
    assert broken.is_retryable
    assert "the partition count of the queue has changed" in broken.message


@pytest.mark.parametrize("has_more", [False, True])
def test_an_expired_head_in_doubt_holds_up_the_move_no_longer(has_more):
    line = LeavingLine(max_count=1).add_slots(GOES)
    line.sent()
    line.partition_sender.lost()
    if has_more:
        line.add_slots(GOES, now=9.0)
    line.partition_sender.is_leaving = True
    line.partition_sender.expire(TIMEOUT_S)
    assert line.fate.told == [(OutcomeUnknownError, 1)]
    line.move()
    assert line.sent_on() == [(0, [b"1"])] * has_more
