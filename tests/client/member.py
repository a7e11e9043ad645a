"""A consumer that writes down what it is told, and the frames that a test tells it."""

import asyncio

from partq import Consumer, PartitionId
from partq.testing import eventually
from partq.wire import frames

P0, P1 = PartitionId(1, 0), PartitionId(1, 1)
WAIT_S = 60.0
LEASE_MS = 60_000
"""So long that none runs out unasked, however long the machine lets a test wait."""


class Member:
    """A consumer that writes down what it is told."""

    def __init__(self, peer, **settings):
        self.told = []
        self.errors = []
        self.consumer = Consumer(
            peer.url,
            queue="orders",
            group="workers",
            member="m",
            **{
                "on_assigned": lambda partition: self.told.append(("assigned", partition)),
                "on_revoked": lambda partition, cause: self.told.append((cause.name, partition)),
                "on_error": self.errors.append,
                "handle_signals": False,
                "leave_timeout_s": 0.05,
                **settings,
            },
        )

    async def next(self):
        async with asyncio.timeout(WAIT_S):
            return await anext(self.consumer)

    async def has_been_told(self, count):
        await eventually(lambda: len(self.told) >= count, f"{count} calls of the application")
        return self.told


def assigned(token=(5, 9), *, partition=0, cursor=0):
    return frames.Assigned(1, partition, *token, cursor)


def deliver(start, stop, token=(5, 9), *, partition=0, delivery=0, cause=0):
    return frames.Deliver(
        1, partition, *token, delivery, token[0], 1_700_000_000_000, start, start, stop, cause
    )


async def bound(peer, stored_batch, *contents, lease_ms=LEASE_MS):
    """Bind a flow that holds partition 0 and has delivered these messages."""
    flow = await peer.flow(lease_ms=lease_ms)
    await flow.send(assigned())
    if contents:
        await flow.send(deliver(0, len(contents)), payload=stored_batch(*contents))
    return flow
