"""A group of type Session on partition 1.0, whose members speak frames."""

from itertools import count

from partq.core.hashing import slot_of
from partq.testing import eventually
from partq.wire import batch, frames
from tests.broker.conftest import CONSUME, connect_as, open_producer
from tests.broker.delivery.keyed import KEY_ORDER, KeyedPeer, follow

OF_PARTITION_0 = [f"s{i}" for i in range(200) if slot_of(f"s{i}") < 16_384]
"""Sessions of partition 1.0."""
A, B, C = OF_PARTITION_0[:3]
LOCK_S = 60.0


class RefusedError(Exception):
    """The broker refused it."""


class SessionPeer(KeyedPeer):
    """A member's flow in a group of type Session."""

    async def bind(self, member="m", incarnation="i", *, credit=1000):
        self.requests, self.delivery = count(1), 0
        await self.send(
            frames.Bind(member, incarnation, credit, takes_lanes=True, takes_sessions=True)
        )
        bound, _ = await self.expect(frames.Bound)
        assert bound.takes_sessions

    async def pick(self, kinds):
        """Return the next frame of a kind, also one that was kept."""
        for at, (frame, _) in enumerate(self._kept):
            if isinstance(frame, kinds):
                del self._kept[at]
                return frame
        return await super().pick(kinds)

    async def begin_accept(self, session=None, *, wait_ms=0, lock=0):
        """Ask for a session, and return the number of the request."""
        request = next(self.requests)
        await self.send(frames.AcceptSession(request, session, wait_ms, lock))
        return request

    async def accept(self, session=None, *, wait_ms=0, lock=0):
        """Return the session that it gets."""
        await self.begin_accept(session, wait_ms=wait_ms, lock=lock)
        return await self.accepted()

    async def accepted(self):
        return self._checked(await self.pick((frames.SessionAccepted, frames.SessionRefused)))

    def _checked(self, answer):
        if isinstance(answer, frames.SessionRefused):
            raise RefusedError(answer.code)
        return answer

    def token(self, session):
        return (session.generation, session.partition, session.broker_epoch, session.epoch)

    async def renew(self, session):
        await self.send(frames.RenewSession(next(self.requests), *self.token(session)))
        answer = await self.pick((frames.SessionRenewed, frames.SessionRefused))
        return self._checked(answer).locked_ms

    async def begin_close(self, session, *begun):
        token = self.token(session)
        await self.send(frames.CloseSession(next(self.requests), *token, list(begun)))

    async def closed(self):
        return self._checked(await self.pick((frames.SessionClosed, frames.SessionRefused)))

    async def close_session(self, session, *begun):
        await self.begin_close(session, *begun)
        await self.closed()

    async def messages(self, session, number):
        """Return so many texts of a session, and their offsets."""
        found = {}
        while len(found) < number:
            frame, payload = await self.find(frames.Deliver)
            if frame.epoch != session.epoch:
                continue
            found |= offsets_of(frame, payload)
            self.delivery = frame.delivery
        return found

    async def ack_offsets(self, session, *offsets, **more):
        """Acknowledge; return the code of a refusal, or ""."""
        ranges = [(each, each + 1) for each in offsets]
        request = next(self.requests)
        delivery = more.pop("delivery", self.delivery)
        ack = frames.Ack(request, *self.token(session), delivery, -1, ranges, **more)
        await self.send(ack)
        return await self.outcome()

    async def nack_offsets(self, session, *offsets, delay_ms=0):
        ranges = [(each, each + 1) for each in offsets]
        request = next(self.requests)
        await self.send(frames.Nack(request, *self.token(session), self.delivery, ranges, delay_ms))
        asked = await self.pick((frames.AskBack, frames.AckRefused, frames.AckConfirmed))
        if isinstance(asked, frames.AskBack):
            await self.give_back(asked)
            return await self.outcome()
        return getattr(asked, "code", "")

    async def outcome(self):
        answer = await self.pick((frames.AckConfirmed, frames.AckRefused))
        return getattr(answer, "code", "")

    async def state(self, session, key=None):
        key = session.session if key is None else key
        await self.send(frames.ReadState(next(self.requests), *self.token(session), key))
        answer = await self.pick((frames.State, frames.StateRefused))
        return answer.code if isinstance(answer, frames.StateRefused) else answer.state


def offsets_of(frame, payload):
    """Return the texts of a delivery by their offsets."""
    messages = batch.decode(payload)
    return {
        offset: messages[offset - frame.first_offset].value.decode()
        for at, offset in enumerate(range(frame.start, frame.stop))
        if not frame.mask or frame.mask[at // 8] >> at % 8 & 1
    }


class Sessions:
    """A group of type Session, and a producer."""

    def __init__(self, running):
        self.running = running

    @classmethod
    async def open(cls, running, *, lock_s=LOCK_S, max_state_bytes=65_536, **more):
        session = {"lockSeconds": lock_s, "maxStateBytes": max_state_bytes}
        await follow(running, type="Session", nack=KEY_ORDER, session=session, **more)
        scene = cls(running)
        await eventually(lambda: scene.has_sessions, "the broker knows the type")
        scene.producer = await open_producer(running)
        return scene

    @property
    def has_sessions(self):
        return self.acceptor.shares_of(self.consumed) is not None

    @property
    def acceptor(self):
        return self.running.broker.sessions

    @property
    def consumed(self):
        owned = self.running.broker.owned
        return next(o.groups["workers"] for name, o in owned.items() if name.index == 0)

    @property
    def shares(self):
        return self.acceptor.shares_of(self.consumed)

    def end_time_of(self, session):
        """Have the time of a lock be over."""
        self.shares.locks.find(session).until = 0.0

    @property
    def book(self):
        return self.consumed.book

    async def publish(self, *keys, index=0, ttl_ms=0):
        """Publish a message of each key: its text is the key and a number."""
        messages = [
            batch.encode_message(batch.Message(key, f"{key or ''}/{at}".encode()))
            for at, key in enumerate(keys)
        ]
        slots = [slot_of(key) if key is not None else 7 for key in keys]
        due = self.producer.due[index]
        frame = frames.Publish(1, 1, index, due, ttl_ms=ttl_ms)
        await self.producer.send(frame, batch.encode(messages, slots))
        await self.producer.expect(frames.Published)
        self.producer.due[index] += len(keys)

    async def join(self, member="m", incarnation="i", **more):
        path = "/v1/queues/orders/groups/workers/flow"
        peer = await connect_as(SessionPeer, self.running, path, CONSUME)
        await peer.bind(member, incarnation, **more)
        return peer

    async def record(self):
        return await self.running.broker.partitions.read_cursor(self.consumed.partition, "workers")
