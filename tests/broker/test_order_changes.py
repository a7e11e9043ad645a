"""A group's order Key takes effect once every living broker knows it."""

import msgspec

from partq.broker.partition.books import Books, are_in_reach, bound, fits, remade
from partq.cli.queues.problems import order_lines
from partq.core.cursor.cursor import GroupCursor
from partq.core.cursor.redelivery_rules import NackOrder, RedeliveryRules
from partq.core.lanes.lane_book import LaneBook
from partq.core.model import Cause, PartitionId
from partq.core.ranges import Ranges
from partq.store.records.leases import Leases
from partq.testing import eventually
from partq.wire import frames
from partq.wire.calls.status import GroupStatus
from tests.broker.conftest import open_flow, open_producer
from tests.broker.delivery.keyed import KEY_ORDER, follow, open_keyed, publish

P0 = PartitionId(1, 0)
KEY = RedeliveryRules(order=NackOrder.KEY)


async def order_of(running):
    await running.broker.refresh()
    return running.broker.config.redelivery["workers"].order


async def test_beside_a_broker_that_does_not_know_it_the_order_is_ordered(running, monkeypatch):
    older = Leases(running.store, running.broker.keys)
    with monkeypatch.context() as patch:
        patch.setattr("partq.store.records.leases.LEASE_FEATURES", ("rescale",))
        await older.renew("orders-9", "i", 600.0, "http://orders-9")
    claims = running.broker.claims
    await eventually(lambda: "orders-9" in claims.seen_living(), "the older broker is seen")
    await follow(running, nack=KEY_ORDER)
    assert await order_of(running) is NackOrder.ORDERED
    _, status = await running.call("GET", "/v1/queues/orders/status")
    group = status["groups"]["workers"]
    assert group["order_waits_for"] == ["orders-9"]
    (line,) = order_lines(msgspec.convert(group, GroupStatus))
    assert line == (
        "nack.order Key takes effect when orders-9 of an earlier version is updated or gone"
    )
    await running.assign("m", [0])
    flow = await open_flow(running)  # also a client that does not know the order
    assigned, _ = await flow.expect(frames.Assigned)
    assert assigned.mode == frames.EXCLUSIVE
    await older.release("orders-9", "i")

    async def is_in_effect():
        return await order_of(running) is NackOrder.KEY

    await eventually(is_in_effect, "all that live know it")
    _, status = await running.call("GET", "/v1/queues/orders/status")
    assert "order_waits_for" not in status["groups"]["workers"]
    await flow.ended()
    keyed = await open_keyed(running)
    assigned, _ = await keyed.expect(frames.Assigned)
    assert assigned.mode == frames.KEYED


async def test_beside_a_broker_that_does_not_know_it_a_group_shares_no_partition_out(
    running, monkeypatch
):
    older = Leases(running.store, running.broker.keys)
    with monkeypatch.context() as patch:
        # It knows order Key, and no members that share a partition.
        patch.setattr("partq.store.records.leases.LEASE_FEATURES", ("rescale", "lanes", "states"))
        await older.renew("orders-9", "i", 600.0, "http://orders-9")
    claims = running.broker.claims
    await eventually(lambda: "orders-9" in claims.seen_living(), "the older broker is seen")
    await follow(running, type="KeyShared", nack=KEY_ORDER, keyShared={"parts": 4})
    assert "parts" not in await running.state()
    _, status = await running.call("GET", "/v1/queues/orders/status")
    (line,) = order_lines(msgspec.convert(status["groups"]["workers"], GroupStatus))
    assert (
        line == "type KeyShared takes effect when orders-9 of an earlier version is updated or gone"
    )
    await older.release("orders-9", "i")

    async def is_in_effect():
        await running.broker.refresh()
        return "parts" in await running.state()

    await eventually(is_in_effect, "all that live know it")


async def test_beside_a_broker_that_does_not_know_it_a_shared_group_is_sent_nothing(
    running, monkeypatch
):
    older = Leases(running.store, running.broker.keys)
    with monkeypatch.context() as patch:
        known = ("rescale", "lanes", "states", "parts", "sessions")
        patch.setattr("partq.store.records.leases.LEASE_FEATURES", known)
        await older.renew("orders-9", "i", 600.0, "http://orders-9")
    claims = running.broker.claims
    await eventually(lambda: "orders-9" in claims.seen_living(), "the older broker is seen")
    await follow(running, type="Shared", nack={**KEY_ORDER, "order": "Free"})
    books = [owned.groups["workers"] for owned in running.broker.owned.values()]
    assert all(each.keys is each.lanes for each in books)
    _, status = await running.call("GET", "/v1/queues/orders/status")
    (line,) = order_lines(msgspec.convert(status["groups"]["workers"], GroupStatus))
    assert line == "type Shared takes effect when orders-9 of an earlier version is updated or gone"
    await older.release("orders-9", "i")

    async def is_in_effect():
        await running.broker.refresh()
        return all(each.keys is not each.lanes for each in books)

    await eventually(is_in_effect, "all that live know it")


def test_another_order_has_another_book_and_other_bounds_the_same_one():
    book = LaneBook(0, max_span=10, max_parked=5)
    assert fits(book, KEY)
    assert not fits(book, RedeliveryRules())
    assert bound(book, KEY)
    assert (book.max_span, book.max_parked) == (KEY.max_span, KEY.max_parked_keys)
    assert not bound(book, KEY)
    assert fits(GroupCursor(0), RedeliveryRules(order=NackOrder.FREE))
    assert not fits(GroupCursor(0), KEY)


def test_a_book_of_another_order_knows_what_the_group_has_done_and_what_has_failed():
    book = GroupCursor(3, [(5, 7)], {4: 2})
    book.mark(9, Cause.BROKER_CHANGE)
    lanes = remade(book, KEY)
    assert (lanes.cursor, lanes.acked_pairs(), lanes.redeliveries) == (3, [(5, 7)], {4: 2})
    assert lanes.sent_end == 9
    again = remade(lanes, RedeliveryRules())
    assert (again.cursor, again.acked_pairs(), again.redeliveries) == (3, [(5, 7)], {4: 2})
    assert again.undone(0, 9) == Ranges([(3, 5), (7, 9)]).pairs()


async def test_acks_that_lie_too_far_above_the_cursor_are_kept_and_the_order_waits(
    running, caplog, monkeypatch
):
    monkeypatch.setattr("partq.broker.partition.books.MAX_BITS", 3)
    assert are_in_reach(0, [(1, 3)])
    await running.assign("m", [0])
    await publish(await open_producer(running), "a0", "b0", "c0", "d0")
    flow = await open_keyed(running)
    header, _ = await flow.deliver()
    assert await flow.ack(header, ranges=[(1, 4)]) == ""
    await follow(running, nack=KEY_ORDER)
    assert "order Key waits" in caplog.text
    consumed = running.broker.owned[P0].groups["workers"]
    _, status = await running.call("GET", "/v1/queues/orders/status")
    (line,) = order_lines(msgspec.convert(status["groups"]["workers"], GroupStatus))
    assert line.startswith("partition 1.0: order Key waits, as acks lie more than ")
    assert line.endswith("it takes effect once the message at offset 0 is done")
    assert (await running.state())["order_waits"] in line
    record = await running.broker.partitions.read_cursor(P0, "workers")
    made = Books(lambda _: KEY, lambda _: 0.0, lambda: 0.0).make(P0, "workers", record)
    for book in (consumed.book, made):
        assert (book.acked_pairs(), isinstance(book, GroupCursor)) == ([(1, 4)], True)
    assert await flow.ack(header, ranges=[(0, 1)]) == ""
    await running.broker.refresh()
    await eventually(lambda: consumed.lanes is not None, "the order is in effect")
    assert consumed.book.cursor == 4
