"""What a WebSocket holds of the memory of requests, however its bytes are cut."""

import asyncio

from aiohttp._websocket.reader import WebSocketDataQueue, WebSocketReader
from aiohttp.base_protocol import BaseProtocol
from hypothesis import given
from hypothesis import strategies as st

from partq.server.frame_meter import FREE_BYTES, FrameMeter
from partq.server.memory import Hold, RequestMemory

LIMIT = 1_000_000
BINARY, CONTINUATION, PING = 2, 0, 9
MASK = bytes(4)


def frame(opcode, payload, *, is_last=True):
    length = len(payload)
    first = (0x80 if is_last else 0) | opcode
    if length < 126:
        head = bytes([first, 0x80 | length])
    elif length < 65536:
        head = bytes([first, 0x80 | 126]) + length.to_bytes(2, "big")
    else:
        head = bytes([first, 0x80 | 127]) + length.to_bytes(8, "big")
    return head + MASK + payload


def message(fragments, has_ping):
    """Return the frames of one message."""
    parts = []
    for at, size in enumerate(fragments):
        opcode = CONTINUATION if at else BINARY
        parts.append(frame(opcode, bytes(size), is_last=at == len(fragments) - 1))
    return (frame(PING, b"x" * 125) if has_ping else b"").join(parts)


class Metered:
    """The meter before aiohttp's own parser."""

    def __init__(self, memory):
        loop = asyncio.get_running_loop()
        self.queue = WebSocketDataQueue(BaseProtocol(loop), 2**30, loop=loop)
        self.parser = WebSocketReader(self.queue, 2**24, compress=False, decode_text=False)
        self.is_cut = False
        self.meter = FrameMeter(self.parser, Hold(memory), self.cut)

    def cut(self):
        self.is_cut = True

    def data_messages(self):
        """Take every complete message from the parser, as sizes."""
        found = [each for each, _ in self.queue._buffer]
        self.queue._buffer.clear()
        return [len(each.data) for each in found if each.type == BINARY]


SIZES = st.one_of(st.integers(0, 200), st.integers(65_000, 66_000), st.integers(0, 200_000))
MESSAGES = st.lists(
    st.tuples(st.lists(SIZES, min_size=1, max_size=3), st.booleans()), min_size=1, max_size=4
)


@given(MESSAGES, st.lists(st.integers(0, 2**31), max_size=8))
def test_what_is_held_is_what_came_and_was_not_taken(messages, cuts):
    async def check():
        memory = RequestMemory(2**30)
        metered = Metered(memory)
        data = b"".join(message(*each) for each in messages)
        ends = sorted({cut % (len(data) + 1) for cut in cuts} | {len(data)})
        waiting = []
        for start, end in zip([0, *ends], ends, strict=False):
            metered.meter.feed_data(data[start:end])
            waiting += metered.data_messages()
            assert metered.meter.held_bytes == sum(waiting) + metered.meter.open_bytes
            assert memory.used_bytes == max(0, metered.meter.held_bytes - FREE_BYTES)
        assert metered.meter.open_bytes == 0
        assert waiting == [sum(fragments) for fragments, _ in messages]
        for size in waiting:
            metered.meter.take(size)
        assert (metered.meter.held_bytes, memory.used_bytes) == (0, 0)

    asyncio.run(check())


async def test_small_messages_pass_when_the_memory_is_used_up():
    memory = RequestMemory(LIMIT)
    other = Hold(memory)
    other.force(LIMIT)
    metered = Metered(memory)
    for _ in range(3):
        metered.meter.feed_data(message([FREE_BYTES - 1], has_ping=False))
    assert metered.data_messages() == [FREE_BYTES - 1] * 3
    assert memory.used_bytes == LIMIT + 2 * FREE_BYTES - 3, "they count all the same"
    metered.meter.close()
    assert memory.used_bytes == LIMIT


async def test_small_messages_pass_in_parts_too():
    """A read may end anywhere in a frame, and in a message of several."""
    memory = RequestMemory(LIMIT)
    other = Hold(memory)
    other.force(LIMIT)
    metered = Metered(memory)
    for _ in range(3):
        data = message([1000, FREE_BYTES - 1000], has_ping=False)
        for start, end in ((0, 2), (2, 500), (500, 1500), (1500, None)):
            metered.meter.feed_data(data[start:end])
            assert not metered.is_cut
    assert metered.data_messages() == [FREE_BYTES] * 3


async def test_a_large_one_is_cut_and_gives_back_what_it_held():
    memory = RequestMemory(LIMIT)
    other = Hold(memory)
    other.force(LIMIT - 100_000)
    metered = Metered(memory)
    data = frame(BINARY, bytes(200_000))
    metered.meter.feed_data(data[:150_000])
    assert not metered.is_cut
    assert memory.used_bytes > LIMIT - 100_000
    metered.meter.feed_data(data[150_000:190_000])
    assert metered.is_cut
    metered.meter.feed_data(data[190_000:])
    metered.meter.take(0)
    metered.meter.close()
    assert memory.used_bytes == LIMIT - 100_000
    assert metered.data_messages() == [], "its parser gets nothing more"


async def test_one_connection_alone_passes_though_it_is_larger_than_the_budget():
    memory = RequestMemory(100)
    metered = Metered(memory)
    metered.meter.feed_data(message([300_000], has_ping=False))
    assert metered.data_messages() == [300_000]
    assert not metered.is_cut
