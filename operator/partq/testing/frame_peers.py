"""Peers that speak the protocol's frames, without any of a client's cleverness."""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

from aiohttp import ClientSession, ClientWebSocketResponse, ClientWSTimeout, WSMsgType

from partq.core.hashing import slot_of
from partq.core.layout import Layout
from partq.wire import batch, frames

WAIT_S = 60.0
"""How long a peer waits for a frame."""
PING_GAP_S = 1.0
"""How often a flow pings."""
OWN_NONCE = 2**31 - 1
"""In the pings that a test does not send itself."""
_TIMEOUTS = ClientWSTimeout(ws_close=1.0)

PeerKind = TypeVar("PeerKind", bound="Peer")
Kinds = type[Any] | tuple[type[Any], ...]


class UnexpectedFrameError(Exception):
    """The broker sent another frame than the one expected."""


class Peer:
    """One WebSocket that speaks frames."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self.socket = socket
        self._kept: deque[tuple[frames.AnyFrame, bytes]] = deque()

    async def send(self, frame: frames.Frame, payload: bytes = b"") -> None:
        """Send a frame."""
        await self.socket.send_bytes(frames.encode(frame, payload))

    async def receive(self) -> tuple[frames.AnyFrame, bytes]:
        """Return the next frame.

        Raises:
            ConnectionResetError: the broker has closed the connection.
            TimeoutError: nothing came.
        """
        return self._kept.popleft() if self._kept else await self._receive_new()

    async def expect(self, kinds: Kinds) -> tuple[Any, bytes]:
        """Return the next frame, pongs aside.

        Raises:
            UnexpectedFrameError: it is of another kind.
        """
        while True:
            frame, payload = await self.receive()
            if isinstance(frame, kinds):
                return frame, payload
            if not isinstance(frame, frames.Pong):
                raise UnexpectedFrameError(f"got {frame}, expected {kinds}")

    async def find(self, kinds: Kinds) -> tuple[Any, bytes]:
        """Return the next frame of a kind; all before it are dropped."""
        while True:
            frame, payload = await self.receive()
            if isinstance(frame, kinds):
                return frame, payload

    async def pick(self, kinds: Kinds) -> Any:
        """Return the next new frame of a kind; all before it are kept for the next `receive`."""
        while True:
            frame, payload = await self._receive_new()
            if isinstance(frame, kinds):
                return frame
            self._kept.append((frame, payload))

    async def ended(self) -> None:
        """Wait until the broker has closed the connection."""
        with suppress(ConnectionResetError):
            while True:
                await self.receive()

    async def close(self) -> None:
        """Close the connection."""
        await self.socket.close()

    async def _receive_new(self) -> tuple[frames.AnyFrame, bytes]:
        async with asyncio.timeout(WAIT_S):
            message = await self.socket.receive()
        if message.type is not WSMsgType.BINARY:
            raise ConnectionResetError(f"{message.type} {message.data}")
        return frames.decode(message.data)


class ProducerPeer(Peer):
    """A producer that numbers its messages, one batch at a time."""

    def __init__(self, socket: ClientWebSocketResponse, layout: Layout) -> None:
        super().__init__(socket)
        self.due = dict.fromkeys(range(layout.partition_count), 0)
        self._layout = layout
        self._requests = count()

    async def publish(self, *values: str, partition: int = 0, ttl_ms: int = 0) -> int:
        """Publish a batch; return its first offset once it is confirmed."""
        await self.offer(self.due[partition], *values, partition=partition, ttl_ms=ttl_ms)
        published, _ = await self.expect(frames.Published)
        self.due[partition] += len(values)
        return int(published.offset)

    async def offer(self, first: int, *values: str, partition: int = 0, ttl_ms: int = 0) -> None:
        """Send a batch whose messages are numbered from `first` on, and await nothing."""
        frame = frames.Publish(next(self._requests), 1, partition, first, ttl_ms)
        await self.send(frame, make_batch(values, key_of(self._layout, partition)))


class FlowPeer(Peer):
    """A member's flow. It pings by itself: a broker takes a silent flow for lost."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        super().__init__(socket)
        self._pings = asyncio.create_task(self._ping_forever())

    def fall_silent(self) -> None:
        """Ping no more."""
        self._pings.cancel()

    async def close(self) -> None:
        """Close the connection."""
        self.fall_silent()
        await super().close()

    def cut(self) -> None:
        """End the connection without a word, as the death of the process does."""
        self.fall_silent()
        connection = self.socket._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()

    async def _ping_forever(self) -> None:
        with suppress(ConnectionError):  # closed by the broker, or with its session
            while not self.socket.closed:
                await self.send(frames.Ping(OWN_NONCE))
                await asyncio.sleep(PING_GAP_S)

    async def _receive_new(self) -> tuple[frames.AnyFrame, bytes]:
        """Return the next frame that is no answer to a ping of `_ping_forever`."""
        async with asyncio.timeout(WAIT_S):
            while True:
                frame, payload = await super()._receive_new()
                if not (isinstance(frame, frames.Pong) and frame.nonce == OWN_NONCE):
                    return frame, payload

    async def deliver(self) -> tuple[frames.Deliver, list[str]]:
        """Return the next delivery and its texts; frames before it are dropped."""
        frame, payload = await self.find(frames.Deliver)
        return frame, values_of(frame, payload)

    async def take(self, number: int) -> list[str]:
        """Return the texts of so many messages, or some more, each delivery acknowledged."""
        values: list[str] = []
        while len(values) < number:
            frame, some = await self.deliver()
            values += some
            await self.ack(frame, frame.stop)
        return values

    async def ack(
        self,
        token: frames.Deliver | frames.Assigned,
        upto: int = -1,
        ranges: Sequence[tuple[int, int]] = (),
        **changes: object,
    ) -> str:
        """Acknowledge under a token; return the code of the refusal, "" when it is confirmed."""
        place = (token.generation, token.partition, token.broker_epoch, token.epoch)
        frame = frames.Ack(1, *place, getattr(token, "delivery", 0), upto, list(ranges))
        for name, value in changes.items():
            setattr(frame, name, value)
        return await self._ask(frame)

    async def nack(
        self, token: frames.Deliver, ranges: Sequence[tuple[int, int]], **changes: Any
    ) -> str:
        """Give messages back; return the code of the refusal, "" when that is stored."""
        fields = {"delivery": token.delivery, "ranges": list(ranges), **changes}
        place = (token.generation, token.partition, token.broker_epoch, token.epoch)
        return await self._ask(frames.Nack(1, *place, **fields))

    async def extend(
        self, token: frames.Deliver, ranges: Sequence[tuple[int, int]], **changes: Any
    ) -> str:
        """Say that messages are in progress; return the code of the refusal, "" when it counts."""
        fields = {"epoch": token.epoch, "delivery": token.delivery, **changes}
        place = (token.generation, token.partition, token.broker_epoch)
        return await self._ask(frames.InProgress(1, *place, ranges=list(ranges), **fields))

    async def begin(self, token: frames.Deliver) -> None:
        """Say that the application has begun all of a delivery."""
        place = (token.generation, token.partition, token.broker_epoch, token.epoch)
        await self.send(frames.Begun(*place, token.delivery, [(token.start, token.stop)]))

    async def gets_nothing(self) -> bool:
        """Say whether no frame comes before the answer to a ping."""
        await self.send(frames.Ping(OWN_NONCE - 1))
        frame, _ = await self.receive()
        return isinstance(frame, frames.Pong)

    async def _ask(self, frame: frames.Ack | frames.Nack | frames.InProgress) -> str:
        await self.send(frame)
        answer = await self.pick((frames.AckConfirmed, frames.AckRefused))
        return answer.code if isinstance(answer, frames.AckRefused) else ""

    async def release(self, token: frames.Deliver, start: int) -> None:
        """Give back all from an offset on."""
        place = (token.generation, token.partition, token.broker_epoch, token.epoch)
        await self.send(frames.Release(*place, token.delivery, start))


async def connect(
    session: ClientSession, url: str, token: str, *, kind: type[PeerKind], **kwargs: Any
) -> PeerKind:
    """Open a WebSocket."""
    headers = {"Authorization": f"Bearer {token}"}
    socket = await session.ws_connect(url, headers=headers, max_msg_size=0, timeout=_TIMEOUTS)
    return kind(socket, **kwargs)


def key_of(layout: Layout, partition: int) -> str:
    """Return a key that lives in a partition."""
    keys = (f"k{number}" for number in count())
    return next(key for key in keys if layout.partition_for(key).index == partition)


def make_batch(values: Sequence[str], key: str) -> bytes:
    """Return a batch of texts under one key."""
    messages = [batch.encode_message(batch.Message(key, value.encode())) for value in values]
    return batch.encode(messages, [slot_of(key)] * len(messages))


def values_of(frame: frames.Deliver, payload: bytes) -> list[str]:
    """Return the texts of a delivery, without those to skip, or that its mask leaves out."""
    skipped = {offset for start, stop in frame.skip for offset in range(start, stop)}
    if frame.mask:
        bits = int.from_bytes(frame.mask, "little")
        window = range(frame.start, frame.stop)
        skipped.update(offset for offset in window if not bits >> (offset - frame.start) & 1)
    first = frame.first_offset
    messages = batch.decode(payload, frame.start - first, frame.stop - first)
    return [m.value.decode() for at, m in enumerate(messages, frame.start) if at not in skipped]
