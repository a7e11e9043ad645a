"""Batches that not every broker may get: they fail before they are sent to one that cannot."""

from partq.client.produce.batching import ReadyBatch
from partq.client.transport.answers import unsupported
from partq.errors import OutcomeUnknownError, UnsupportedError
from partq.wire import batch
from partq.wire.batch import Codec, Message
from tests.client.produce.test_partition_sender import LATER, TIMEOUT_S, Line

NEEDED = frozenset({"scheduled"})


def add_needing(line, *contents):
    encoded = batch.encode_messages([Message("k", content) for content in contents])
    data = batch.encode(encoded, [7] * len(encoded), Codec.NONE)
    size = sum(map(len, encoded))
    ready = ReadyBatch(data, len(contents), size, needs=NEEDED)
    line.partition_sender.add_batch(ready, line.fate, TIMEOUT_S)
    return line


def test_a_batch_is_not_sent_to_a_broker_without_what_it_needs_and_the_others_are():
    line = Line().add(b"a")
    add_needing(line, b"b", b"c").add(b"d")
    assert line.sent() == [(1, 0, [b"a"])]  # the rest waits for the answer
    line.partition_sender.stored(1, 10)
    assert line.sent() == [(2, 1, [b"d"])]
    line.partition_sender.stored(2, 11)
    assert line.fate.told == [(10, 1), (UnsupportedError, 2), (11, 1)]
    assert line.freed == 4
    assert not line.partition_sender.has_work


def test_a_broker_that_has_what_is_needed_gets_the_batch():
    line = Line()
    line.partition_sender.features = NEEDED | {"more"}
    assert add_needing(line, b"a").sent() == [(1, 0, [b"a"])]


def test_a_batch_that_an_earlier_broker_may_have_stored_is_of_unknown_outcome():
    line = Line()
    line.partition_sender.features = NEEDED
    add_needing(line, b"a").sent()
    line.partition_sender.lost()
    line.partition_sender.features = frozenset()  # the next owner is of an earlier version
    line.add(b"b")
    assert line.sent(LATER) == [(2, 0, [b"b"])]
    assert line.fate.told == [(OutcomeUnknownError, 1)]
    assert line.partition_sender.producer == "second"


def test_what_a_batch_needs_stays_with_both_its_parts_when_it_is_cut():
    line = Line()
    line.partition_sender.features = NEEDED
    batch_of_two = line.partition_sender
    add_needing(line, b"a", b"b")
    head, tail = batch_of_two.take(1, 0.0).cut(1)
    assert head.needs == tail.needs == NEEDED


def test_an_error_has_the_names_of_what_is_missing_and_what_to_do():
    error = unsupported({"message-ids", "atomic"}, "the broker")
    assert "the broker is of a version without atomic, message-ids, " in error.message
    assert "nothing was sent: upgrade brokers first" in error.message
