"""A consumer of sessions, and the frames that a test tells it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from partq import LockedSession, SessionConsumer
from partq.client.sessions import locked_session, session_consumer
from partq.wire import frames
from tests.client.member import LEASE_MS, WAIT_S

EPOCH = 9


class Clerk:
    """A consumer of sessions at a scripted peer."""

    def __init__(self, peer, **settings) -> None:
        self.peer = peer
        self.lost: list[LockedSession] = []
        self.consumer = SessionConsumer(
            peer.url,
            queue="orders",
            group="workers",
            member="m",
            **{"on_lost": self.lost.append, "handle_signals": False, "idle_s": 60, **settings},
        )

    async def flow(self, *, takes_sessions=True, peer=None):
        """Bind the next flow."""
        flow = await (peer or self.peer).raw_flow()
        known = {"takes_states": True, "takes_sessions": takes_sessions}
        await flow.send(frames.Bound("broker-0", 1, LEASE_MS, takes_lanes=True, **known))
        return flow

    async def accepted(self, flow, session="k", *, lock=7, locked_ms=60_000, epoch=EPOCH):
        """Accept a session that the peer gives."""
        accepting = asyncio.create_task(self.consumer.accept(timeout_s=30))
        asked = await flow.next(frames.AcceptSession)
        await flow.send(given(asked.request, session, lock=lock, locked_ms=locked_ms, epoch=epoch))
        async with asyncio.timeout(WAIT_S):
            return await accepting


def given(request, session="k", *, lock=7, locked_ms=60_000, epoch=EPOCH):
    """Return the answer that gives a session."""
    return frames.SessionAccepted(request, session, lock, 1, 0, 5, epoch, locked_ms)


def refused(request, code):
    return frames.SessionRefused(request, code, "so it is")


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have sessions that nobody unlocks closed soon; a test that unlocks one asks for more."""
    monkeypatch.setattr(locked_session, "CLOSE_S", 0.05)
    monkeypatch.setattr(session_consumer, "LEAVE_S", 0.05)


@pytest.fixture
async def clerk(peer) -> AsyncIterator[Clerk]:
    clerk = Clerk(peer)
    async with clerk.consumer:
        yield clerk
