"""Batches of one partition, cut anew where some of its slots go to others."""

import pytest

from partq.client.produce.batching import SealedBatch
from partq.client.produce.failures import Failures
from partq.client.produce.interceptors import (
    InterceptedResult,
    ProducerInterceptor,
    ProducerInterceptors,
)
from partq.client.produce.results import ListResult, Position, SingleResult
from partq.client.produce.slot_routes import SlotRoutes
from partq.client.produce.window_cut import cut
from partq.core.model import PartitionId
from partq.core.numbering.scheduled_ids import AT_ONCE, DueTime
from partq.core.slot_table import SlotTable
from partq.errors import NotStoredError
from partq.wire import batch as wire
from partq.wire.batch import Codec, Message

HOME, NEW, OTHER = PartitionId(1, 0), PartitionId(2, 2), PartitionId(2, 3)
BY_SLOT = {0: HOME, 1: NEW, 2: OTHER}


class Told:
    """A result that can be divided, and writes down what it hears."""

    def __init__(self):
        self.told = []

    def stored(self, partition, offset, count):
        self.told.append((partition, offset, count))

    def divided(self, partition, destinations):
        return dict.fromkeys(destinations, self)


def sealed(slots, results=None, *, codec=Codec.NONE, ttl_ms=0, deadline=9.0, due=AT_ONCE):
    encoded = wire.encode_messages([Message("k", b"%d" % n) for n in range(len(slots))])
    return SealedBatch(
        wire.encode(encoded, slots, codec), results or [(Told(), len(slots))], first=5,
        size_bytes=sum(map(len, encoded)), deadline=deadline, ttl_ms=ttl_ms,
        due=due,
    )  # fmt: skip


def cut_up(*batches):
    return cut(HOME, batches, BY_SLOT.__getitem__)


def contents(batches):
    return [
        [(message.value, slot) for message, slot in zip(
            wire.decode(each.data), wire.read_slots(each.data, wire.read_header(each.data)),
            strict=True,
        )]
        for each in batches
    ]  # fmt: skip


@pytest.mark.parametrize("codec", list(Codec))
def test_messages_are_sorted_by_the_partition_of_their_slot_in_order(codec):
    before = sealed([0, 1, 1, 0, 2], codec=codec, ttl_ms=70, deadline=3.0)
    parts = cut_up(before)
    assert {each: contents(batches) for each, batches in parts.items()} == {
        HOME: [[(b"0", 0), (b"3", 0)]],
        NEW: [[(b"1", 1), (b"2", 1)]],
        OTHER: [[(b"4", 2)]],
    }
    flat = [batch for batches in parts.values() for batch in batches]
    assert {(each.ttl_ms, each.deadline) for each in flat} == {(70, 3.0)}
    assert sum(each.size_bytes for each in flat) == before.size_bytes
    for each in flat:
        assert wire.read_header(each.data).codec is codec
        wire.check(each.data, slots=[range(3)], max_message_bytes=100)


def test_a_batch_whose_messages_stay_together_keeps_its_bytes():
    stays, goes = sealed([0, 0]), sealed([1, 1])
    data = [stays.data, goes.data]
    parts = cut_up(stays, goes)
    assert [parts[HOME][0].data, parts[NEW][0].data] == data


def test_messages_keep_the_time_at_which_they_are_due():
    due = DueTime(7)
    batch = sealed([0, 1], due=due)
    head, tail = batch.cut(1)
    parts = cut_up(batch)
    assert {each.due for each in (head, tail, *parts[HOME], *parts[NEW])} == {due}


def test_each_result_hears_of_its_messages_alone():
    one, two = Told(), Told()
    parts = cut_up(sealed([0, 1, 1, 1], [(one, 2), (two, 2)]))
    parts[NEW][0].resolve_stored(NEW, 40)
    parts[HOME][0].resolve_stored(HOME, 7)
    assert (one.told, two.told) == ([(NEW, 40, 1), (HOME, 7, 1)], [(NEW, 41, 2)])


# ---- positions of a list ----

TWO = SlotTable.first(2)
THREE = TWO.resized(3, 2).table
ROUTES = SlotRoutes.of(TWO)
FIRST, SECOND = TWO.slots


def slots_of(*wanted):
    """Return a slot for each (partition before, partition after)."""
    return [
        next(s for s in range(65_536) if (TWO.partition_of(s), THREE.partition_of(s)) == pair)
        for pair in wanted
    ]


def cut_list(result, partition, slots):
    """Cut what a list has for a partition by the later table."""
    own = [slot for slot in slots if TWO.partition_of(slot) == partition]
    return cut(partition, [sealed(own, [(result, len(own))])], THREE.partition_of)


LIST = slots_of((FIRST, NEW), (SECOND, NEW), (FIRST, FIRST), (SECOND, NEW), (FIRST, NEW))


async def test_positions_are_those_of_the_list_also_when_its_messages_move():
    result = ListResult(ROUTES, LIST, Failures())
    one, two = cut_list(result, FIRST, LIST), cut_list(result, SECOND, LIST)
    two[NEW][0].resolve_stored(NEW, 10)
    one[NEW][0].resolve_stored(NEW, 20)
    assert not result.future.done()
    one[FIRST][0].resolve_stored(FIRST, 5)
    positions = await result.future
    assert list(positions) == [
        Position(NEW, 20), Position(NEW, 10), Position(FIRST, 5), Position(NEW, 11),
        Position(NEW, 21),
    ]  # fmt: skip
    assert repr(positions) == f"Positions(5 messages in partitions {FIRST}, {NEW})"


async def test_positions_of_what_was_stored_before_are_kept():
    slots = LIST[2:3] + LIST
    result = ListResult(ROUTES, slots, Failures())
    result.stored(FIRST, 3, 1)
    one, two = cut_list(result, FIRST, LIST), cut_list(result, SECOND, LIST)
    one[FIRST][0].resolve_stored(FIRST, -1)
    one[NEW][0].resolve_stored(NEW, 20)
    again = cut(NEW, two[NEW], lambda slot: OTHER)  # and they move once more
    again[OTHER][0].resolve_stored(OTHER, 0)
    assert [tuple(place) for place in await result.future] == [
        (FIRST, 3), (NEW, 20), (OTHER, 0), (FIRST, -1), (OTHER, 1), (NEW, 21),
    ]  # fmt: skip


async def test_a_list_fails_when_one_of_its_parts_does():
    result = ListResult(ROUTES, LIST, Failures())
    one, two = cut_list(result, FIRST, LIST), cut_list(result, SECOND, LIST)
    for parts in (one, two):
        for partition, batches in parts.items():
            if partition == NEW:
                batches[0].resolve_failed(NEW, NotStoredError("no"))
            else:
                batches[0].resolve_stored(partition, 0)
    with pytest.raises(NotStoredError, match="4 of 5 messages failed"):
        await result.future


async def test_a_single_message_is_stored_where_it_went():
    result = SingleResult(Failures())
    cut(HOME, [sealed([1], [(result, 1)])], BY_SLOT.__getitem__)[NEW][0].resolve_stored(NEW, 3)
    assert await result.future == Position(NEW, 3)


async def test_interceptors_learn_of_the_right_messages():
    class Listener(ProducerInterceptor):
        def on_send_result(self, queue, message, position, error):
            heard.append((message.value, position))

    heard = []
    inner = ListResult(ROUTES, LIST, Failures())
    messages = [Message("k", b"%d" % n) for n in range(len(LIST))]
    mine = [m for m, slot in zip(messages, LIST, strict=True) if TWO.partition_of(slot) == FIRST]
    interceptors = ProducerInterceptors("orders", [Listener()])
    result = InterceptedResult(inner, interceptors, {FIRST: mine})
    parts = cut_list(result, FIRST, LIST)
    parts[NEW][0].resolve_stored(NEW, 20)
    parts[FIRST][0].resolve_stored(FIRST, 5)
    assert heard == [
        (b"0", Position(NEW, 20)), (b"4", Position(NEW, 21)), (b"2", Position(FIRST, 5)),
    ]  # fmt: skip
