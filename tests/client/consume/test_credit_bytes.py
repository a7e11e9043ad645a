"""When a consumer tells its broker that it has room for bytes again, against frames of a test."""

import pytest

from partq.testing import eventually
from partq.wire import frames
from tests.client.member import LEASE_MS, Member, assigned, deliver

CREDIT_BYTES = 20_000
"""Below the largest batch: as with any credit, that comes only to a client that holds nothing."""


@pytest.fixture
async def member(peer):
    """A consumer whose room in messages is never used up by a quarter."""
    member = Member(peer, credit=1000, credit_bytes=CREDIT_BYTES)
    async with member.consumer:
        yield member


async def delivered(peer, *payloads, counts_bytes=True):
    """Bind a flow, and deliver batches of one message each."""
    flow = await peer.raw_flow()
    bound = frames.Bound("broker-0", 1, LEASE_MS, counts_bytes=counts_bytes)
    await flow.send(bound, assigned())
    for offset, payload in enumerate(payloads):
        await flow.send(deliver(offset, offset + 1), payload=payload)
    return flow


async def hold(member, payloads):
    """Wait until the consumer holds them."""
    (flow,) = member.consumer._flows
    await eventually(lambda: flow._room.held_bytes >= sum(map(len, payloads)), "all are held")


async def test_a_quarter_of_the_bytes_comes_back_while_others_are_held(peer, member, stored_batch):
    """Of large messages a quarter of the count never comes together: the broker would wait."""
    large = [stored_batch(bytes(CREDIT_BYTES // 4)), stored_batch(bytes(CREDIT_BYTES // 4))]
    flow = await delivered(peer, *large)
    await hold(member, large)
    await member.next()
    credit = await flow.next(frames.Credit)
    assert (credit.messages, credit.size_bytes) == (1, len(large[0]))


async def test_fewer_bytes_come_back_when_nothing_is_held(peer, member, stored_batch):
    """What waits at the broker may be larger than the rest of the credit."""
    small = [stored_batch(b"a"), stored_batch(b"b")]
    flow = await delivered(peer, *small)
    await hold(member, small)
    await member.next()
    await member.next()
    credit = await flow.next(frames.Credit)
    assert (credit.messages, credit.size_bytes) == (2, sum(map(len, small)))


async def test_a_broker_that_counts_no_bytes_gets_none_alone(peer, member, stored_batch):
    flow = await delivered(peer, stored_batch(bytes(CREDIT_BYTES)), counts_bytes=False)
    message = await member.next()
    member.consumer.ack_nowait(message)
    await flow.next(frames.Ack)  # and no Credit before it
