"""One partition of a producer, without a socket: what is sent after which answer."""

import pytest

from partq.client.produce.batching import BatchLimits, ReadyBatch
from partq.client.produce.partition_sender import PartitionSender
from partq.client.producer_stats import ProducerTally
from partq.core.model import PartitionId
from partq.errors import (
    InternalError,
    NotStoredError,
    OutcomeUnknownError,
)
from partq.wire import batch
from partq.wire.batch import Codec, Message

PARTITION = PartitionId(1, 0)
TIMEOUT_S = 100.0
LATER = 50.0
"""Behind every back-off, before every deadline."""


class Fate:
    """Writes down what becomes of messages."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def stored(self, partition, offset, count):
        self.told.append((offset, count))

    def failed(self, partition, error, count):
        self.told.append((type(error), count))


class Line:
    """A partition sender, with requests numbered from 1."""

    def __init__(self, *, ids=("second", "third"), first=0, max_count=2, codec=Codec.NONE):
        self.fate = Fate()
        self.ids = list(ids)
        self.freed = 0
        self.partition_sender = PartitionSender(
            PARTITION,
            producer="first",
            first=first,
            limits=BatchLimits(max_count=max_count, max_bytes=1000, codec=codec),
            next_producer=lambda _: self.ids.pop(0) if self.ids else None,
            give_back=lambda count, _: setattr(self, "freed", self.freed + count),
            tally=ProducerTally(lambda: 0.0),
        )
        self.partition_sender.max_in_flight = 5
        self.requests = 0

    def add(self, *contents: bytes, now=0.0, ttl_ms=0):
        encoded = batch.encode_messages([Message("k", content) for content in contents])
        self.partition_sender.add(encoded, [7] * len(encoded), self.fate, now + TIMEOUT_S, ttl_ms)
        self.partition_sender.make_due()
        return self

    def sent(self, now=0.0):
        """Send all that can be; return (request, first, values) of each batch."""
        out = []
        while (taken := self.partition_sender.take(self.requests + 1, now)) is not None:
            self.requests += 1
            contents = [message.value for message in batch.decode(taken.data)]
            out.append((self.requests, taken.first, contents))
        return out

    def refused(self, request, code, due=-1, now=0.0, retry_after_s=0.0):
        self.partition_sender.refused(
            request, code, "no", due=due, retry_after_s=retry_after_s, now=now
        )


def line_of_three(**kwargs):
    line = Line(**kwargs).add(b"a", b"b", b"c", b"d", b"e")
    assert line.sent() == [(1, 0, [b"a", b"b"]), (2, 2, [b"c", b"d"]), (3, 4, [b"e"])]
    return line


def test_batches_go_out_in_order_and_settle_with_their_offsets():
    line = line_of_three()
    for request, offset in ((1, 10), (2, 12), (3, 14)):
        line.partition_sender.stored(request, offset)
    assert line.fate.told == [(10, 2), (12, 2), (14, 1)]
    assert line.freed == 5
    assert not line.partition_sender.has_work


def test_no_more_than_the_limit_are_in_flight():
    line = Line(max_count=1)
    line.partition_sender.max_in_flight = 2
    line.add(b"a", b"b", b"c")
    assert [values for _, _, values in line.sent()] == [[b"a"], [b"b"]]
    line.partition_sender.stored(1, 0)
    assert [values for _, _, values in line.sent()] == [[b"c"]]


def test_what_gathers_while_all_is_in_flight_makes_one_batch():
    line = Line(max_count=10)
    line.partition_sender.max_in_flight = 1
    line.add(b"a")
    line.sent()
    line.add(b"b").add(b"c")
    line.partition_sender.stored(1, 0)
    assert line.sent() == [(2, 1, [b"b", b"c"])]


def test_a_batch_has_one_time_to_live_also_when_it_is_cut_and_sent_again():
    line = Line(max_count=3)
    for content, ttl_ms in ((b"a", 0), (b"b", 50), (b"c", 50), (b"d", 0), (b"e", 70)):
        line.add(content, ttl_ms=ttl_ms)
    line.add(b"f", b"g", b"h", ttl_ms=70)
    taken = [line.partition_sender.take(request, 0.0) for request in range(1, 6)]
    assert [(each.first, each.count, each.ttl_ms) for each in taken] == [
        (0, 1, 0), (1, 2, 50), (3, 1, 0), (4, 3, 70), (7, 1, 70),
    ]  # fmt: skip
    line.refused(1, "resend_from", due=2)
    for request in range(2, 6):
        line.refused(request, "out_of_sequence", due=2)
    again = [line.partition_sender.take(request, LATER) for request in range(6, 10)]
    assert [(each.first, each.count, each.ttl_ms) for each in again] == [
        (2, 1, 50), (3, 1, 0), (4, 3, 70), (7, 1, 70),
    ]  # fmt: skip


def test_a_lost_connection_repeats_the_same_numbers_and_bytes():
    line = line_of_three()
    line.partition_sender.stored(1, 0)
    line.partition_sender.lost()
    assert line.sent() == [(4, 2, [b"c", b"d"]), (5, 4, [b"e"])]


def test_a_late_answer_from_a_lost_connection_changes_nothing():
    line = line_of_three()
    line.partition_sender.lost()
    line.partition_sender.stored(1, 0)
    assert line.sent()[0] == (4, 0, [b"a", b"b"])
    line.partition_sender.stored(4, 0)
    assert line.fate.told == [(0, 2)]


@pytest.mark.parametrize("code", ["not_stored", "quota_exceeded", "outcome_unknown", "internal"])
def test_a_refusal_that_can_pass_repeats_all_in_order_after_the_answers_of_the_others(code):
    line = line_of_three()
    line.refused(1, code)
    assert line.sent(LATER) == [], "the answers of the others are under way"
    line.refused(2, "out_of_sequence", due=0)
    line.refused(3, "out_of_sequence", due=0)
    assert line.sent(LATER) == [(4, 0, [b"a", b"b"]), (5, 2, [b"c", b"d"]), (6, 4, [b"e"])]


def test_a_retry_waits_as_long_as_the_broker_asks():
    line = Line().add(b"a")
    line.sent()
    line.refused(1, "quota_exceeded", retry_after_s=7.0)
    assert line.sent(6.9) == []
    assert line.sent(7.1) == [(2, 0, [b"a"])]


def test_a_duplicate_too_old_for_its_place_is_stored_at_an_unknown_offset():
    line = Line().add(b"a")
    line.sent()
    line.partition_sender.stored(1, -1)
    assert line.fate.told == [(-1, 1)]


@pytest.mark.parametrize("codec", list(Codec))
def test_resend_from_cuts_the_batch_there(codec):
    line = Line(max_count=3, codec=codec).add(b"a", b"b", b"c", b"d")
    line.sent()
    line.refused(1, "resend_from", due=1)
    line.refused(2, "out_of_sequence", due=1)
    assert line.sent(LATER) == [(3, 1, [b"b", b"c"]), (4, 3, [b"d"])]
    assert line.fate.told == [(-1, 1)]
    line.partition_sender.stored(3, 41)
    assert line.fate.told == [(-1, 1), (41, 2)]


def test_a_number_due_behind_whole_batches_settles_them():
    line = line_of_three()
    line.refused(1, "resend_from", due=4)
    line.refused(2, "out_of_sequence", due=4)
    line.refused(3, "out_of_sequence", due=4)
    assert line.sent(LATER) == [(4, 4, [b"e"])]
    assert line.fate.told == [(-1, 2), (-1, 2)]


def test_a_final_refusal_fails_its_messages_and_renumbers_the_later_ones():
    line = line_of_three()
    line.refused(1, "message_too_large")
    assert line.fate.told[0][1] == 2
    assert line.sent(LATER) == []
    line.refused(2, "out_of_sequence", due=0)
    line.refused(3, "out_of_sequence", due=0)
    assert line.sent(LATER) == [(4, 0, [b"c", b"d"]), (5, 2, [b"e"])]
    assert line.partition_sender.producer == "first"


def test_numbers_are_not_used_again_while_a_copy_may_be_under_way():
    line = line_of_three()
    line.refused(1, "bad_batch")
    line.partition_sender.lost()  # copies of the second and third batch may still reach the broker
    assert line.partition_sender.producer == "second"
    assert line.sent(LATER) == [(4, 0, [b"c", b"d"]), (5, 2, [b"e"])]


@pytest.mark.parametrize("code", ["bad_request", "forbidden", "message_too_large"])
def test_what_may_be_stored_is_not_sent_under_another_id_when_its_repeat_is_refused(code):
    line = line_of_three().add(b"f")
    line.partition_sender.lost()  # all three may be stored
    assert [first for _, first, _ in line.sent()] == [0, 2, 4, 5]
    line.refused(4, code)
    assert line.fate.told == [(OutcomeUnknownError, count) for count in (2, 2, 1, 1)]
    assert line.partition_sender.producer == "second"
    line.add(b"g")
    assert line.sent(LATER) == [(8, 0, [b"g"])]


def test_an_unknown_producer_with_nothing_in_doubt_starts_anew():
    line = Line(first=9).add(b"a")
    line.sent()
    line.refused(1, "unknown_producer")
    assert line.partition_sender.producer == "second"
    assert line.sent(LATER) == [(2, 0, [b"a"])]
    assert line.fate.told == []


def test_an_unknown_producer_fails_what_is_in_doubt_and_sends_the_rest():
    line = Line(first=9, max_count=1).add(b"a", b"b")
    line.partition_sender.max_in_flight = 1
    line.sent()
    line.partition_sender.lost()
    line.sent()
    line.refused(2, "unknown_producer")
    assert [count for _, count in line.fate.told] == [1]
    assert line.sent(LATER) == [(3, 0, [b"b"])]


def test_a_store_that_lost_confirmed_messages_gets_the_next_ones_under_a_new_id():
    line = Line(first=20).add(b"a")
    line.sent()
    line.refused(1, "out_of_sequence", due=15)
    assert (line.partition_sender.producer, line.sent(LATER)) == ("second", [(2, 0, [b"a"])])


def test_a_given_id_cannot_be_changed_so_the_partition_stops():
    line = Line(ids=(), first=20).add(b"a")
    line.sent()
    line.refused(1, "out_of_sequence", due=15)
    assert line.fate.told == [(NotStoredError, 1)]
    assert line.partition_sender.broken is not None


def test_a_second_process_under_the_same_id_is_found_out():
    line = Line().add(b"a")
    line.sent()
    line.refused(1, "out_of_sequence", due=500)
    assert "another process" in str(line.partition_sender.broken)


def test_what_was_never_sent_is_not_stored_when_its_time_is_up():
    line = Line().add(b"a")
    line.partition_sender.expire(TIMEOUT_S)
    assert line.fate.told == [(NotStoredError, 1)]
    line.add(b"b", now=TIMEOUT_S)
    assert line.sent() == [(1, 0, [b"b"])]


def test_what_was_sent_without_an_answer_has_an_unknown_outcome():
    line = Line(max_count=1).add(b"a")
    line.sent()
    line.add(b"b", now=1.0)
    line.partition_sender.max_in_flight = 1
    line.partition_sender.expire(TIMEOUT_S)
    assert line.fate.told == [(OutcomeUnknownError, 1)]
    assert line.partition_sender.producer == "second", "the old numbers may be taken"
    assert line.sent() == [(2, 0, [b"b"])]


def test_a_refusal_that_says_not_stored_is_believed_when_time_is_up():
    line = Line().add(b"a")
    line.sent()
    line.refused(1, "quota_exceeded")
    line.partition_sender.expire(TIMEOUT_S)
    assert line.fate.told == [(NotStoredError, 1)]


def test_an_answer_out_of_order_ends_the_connection():
    line = line_of_three()
    with pytest.raises(InternalError):
        line.partition_sender.stored(2, 0)


def test_closing_tells_the_truth_about_each_message():
    line = Line(max_count=1)
    line.partition_sender.max_in_flight = 1
    line.add(b"a", b"b")
    line.sent()
    line.partition_sender.fail_all(NotStoredError("closed"))
    assert line.fate.told == [(OutcomeUnknownError, 1), (NotStoredError, 1)]
    assert line.freed == 2


def test_brokers_that_name_each_other_are_not_asked_in_a_tight_loop():
    line = Line().add(b"a")
    line.sent()
    line.partition_sender.moved(0.0, is_elsewhere=True)
    assert line.sent(0.0), "the first move is followed at once"
    line.partition_sender.moved(0.0, is_elsewhere=True)
    assert line.sent(0.0) == []
    assert line.sent(LATER)


def ready(*contents: bytes) -> ReadyBatch:
    encoded = batch.encode_messages([Message("k", content) for content in contents])
    return ReadyBatch(batch.encode(encoded, [7] * len(encoded)), len(encoded), 50)


def line_of_ready_batches():
    line = Line(first=40)
    for contents in ((b"a", b"b"), (b"c",)):
        line.partition_sender.add_batch(ready(*contents), line.fate, TIMEOUT_S)
    return line


def test_a_ready_batch_goes_out_as_it_is_behind_what_was_gathered():
    line = Line(max_count=10).add(b"0")
    line.partition_sender.add_batch(ready(b"a", b"b"), line.fate, TIMEOUT_S)
    line.partition_sender.add_batch(ready(b"c"), line.fate, TIMEOUT_S)
    assert line.sent() == [(1, 0, [b"0"]), (2, 1, [b"a", b"b"]), (3, 3, [b"c"])]


def test_a_ready_batch_is_cut_where_the_broker_knows_its_beginning():
    line = line_of_ready_batches()
    line.sent()
    line.refused(1, "resend_from", due=41)
    line.refused(2, "out_of_sequence", due=41)
    assert line.sent(LATER) == [(3, 41, [b"b"]), (4, 42, [b"c"])]


def line_of_fixed_numbers(*deadlines):
    """A batch of two and one of one message, whose numbers stand for them and no others."""
    line = Line(ids=())
    line.partition_sender = PartitionSender(
        PARTITION,
        producer="first",
        first=40,
        limits=BatchLimits(max_count=2, max_bytes=1000, codec=Codec.NONE),
        next_producer=lambda _: None,
        give_back=lambda count, _: setattr(line, "freed", line.freed + count),
        tally=ProducerTally(lambda: 0.0),
        are_numbers_fixed=True,
    )
    for contents, deadline in zip(((b"a", b"b"), (b"c",)), deadlines, strict=True):
        line.partition_sender.add_batch(ready(*contents), line.fate, deadline)
    return line


@pytest.mark.parametrize("code", ["message_too_large", "unknown_producer"])
def test_fixed_numbers_are_never_given_to_other_messages(code):
    line = line_of_fixed_numbers(TIMEOUT_S, TIMEOUT_S)
    line.sent()
    line.refused(1, code)
    assert line.sent(LATER) == []
    assert [count for _, count in line.fate.told] == [2, 1]
    assert line.freed == 3
    assert line.partition_sender.broken is not None


def test_fixed_numbers_end_with_the_first_batch_that_is_too_late():
    line = line_of_fixed_numbers(10.0, 20.0)
    line.partition_sender.expire(15.0)
    assert line.fate.told == [(NotStoredError, 2), (NotStoredError, 1)]
    assert line.sent(LATER) == []
