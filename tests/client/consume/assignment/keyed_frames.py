"""The frames of a group of order Key that tests write, and how they read the answers."""

import asyncio

from partq import Message
from partq.wire import batch, frames
from tests.client.member import LEASE_MS, WAIT_S

TOKEN = (5, 9)
A, B, C = 11, 22, 33
"""Slots of the keys a, b and c."""
SLOTS = {"a": A, "b": B, "c": C}


def stored(*keys):
    """Return a batch with a message for each key, whose value is the key and its place."""
    messages = [Message(key, f"{key}{place}".encode()) for place, key in enumerate(keys)]
    return batch.encode(batch.encode_messages(messages), [SLOTS[key] for key in keys])


def deliver(start, stop, mask=b"", *, first=0, cause=0, causes=b"", counts=(), number=0):
    return frames.Deliver(
        1, 0, *TOKEN, number, 5, 1_700_000_000_000, first, start, stop, cause, [], list(counts),
        mask=mask, causes=causes,
    )  # fmt: skip


def mask_of(*places):
    return sum(1 << place for place in places).to_bytes(4, "little")


def ask_back(notice, *slots):
    return frames.AskBack(1, 0, *TOKEN, notice, [(slot, slot + 1) for slot in slots])


async def bound(peer, *keys):
    """Bind a flow that holds partition 0, and has delivered a message for each key."""
    flow = await peer.raw_flow()
    options = {"takes_begun": True, "takes_withholds": True, "takes_in_progress": True}
    await flow.send(frames.Bound("broker-0", 1, LEASE_MS, takes_dead_letters=True, **options))
    await flow.send(frames.Assigned(1, 0, *TOKEN, 0, frames.KEYED))
    if keys:
        await flow.send(deliver(0, len(keys)), payload=stored(*keys))
    return flow


async def returned(flow):
    """Return the notice and ranges of the next frame, which gives back."""
    frame = await frame_of(flow, frames.Returned)
    assert (frame.generation, frame.partition, frame.broker_epoch, frame.epoch) == (1, 0, *TOKEN)
    return frame.notice, frame.ranges


async def frame_of(flow, kind):
    """Return the next frame that is no news of what has begun, and no credit."""
    while isinstance(frame := await flow.next(), frames.Begun | frames.Credit):
        pass
    assert isinstance(frame, kind), frame
    return frame


async def begun(flow, offsets):
    """Wait until the broker knows of these offsets that they have begun."""
    missing = set(offsets)
    while missing:
        for start, stop in (await flow.next(frames.Begun)).ranges:
            missing -= set(range(start, stop))


async def values(member, count):
    return [(await member.next()).value.decode() for _ in range(count)]


async def finish(work):
    async with asyncio.timeout(WAIT_S):
        return await work


async def confirm(flow, kind, work):
    """Confirm the next frame of a kind and what waits for it; return the frame."""
    frame = await frame_of(flow, kind)
    await flow.send(frames.AckConfirmed(frame.request))
    await finish(work)
    return frame
