"""Roads that a test can block: a tunnel of bytes, and one that knows a coordinator's calls.

A tunnel may hold what passes while every connection stays open, as a network does that is cut in
the middle; then it arrives late, or never. A gate holds a call at a named point, `before:pause`,
`answered:pause` (by the broker, which nobody knows yet) or `after:pause`, until the test says what
becomes of it: the point at which somebody dies.
"""

import asyncio
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

from partq.testing import eventually

CHUNK = 65_536
BROKEN = (OSError, EOFError, asyncio.LimitOverrunError)


@dataclass(eq=False)
class Call:
    """One call of a coordinator to a broker."""

    name: str
    """`pause`, `drain`, `commit`, `cancel`, `state`, ..."""
    request: bytes
    answer: bytes = b""
    is_over: bool = False
    """It is answered, or never will be."""

    @property
    def items(self):
        """What it asks for each partition."""
        (items,) = [v for v in _body(self.request).values() if isinstance(v, list)]
        return items

    @property
    def results(self):
        """What was answered for each partition; nothing while nothing was."""
        return _body(self.answer)["results"] if self.answer else []


def _body(message):
    return json.loads(message.partition(b"\r\n\r\n")[2])


class Gate:
    """Holds every call that comes to a point."""

    def __init__(self):
        self.calls = []
        self.reached = asyncio.Event()
        self._decided = asyncio.Event()
        self._may_pass = False

    async def __call__(self, call):
        self.calls.append(call)
        self.reached.set()
        await self._decided.wait()
        return self._may_pass

    def open(self):
        """Let all calls pass, late as they are, and those that come."""
        self._may_pass = True
        self._decided.set()

    def drop(self):
        """Let no call pass: the connection ends instead."""
        self._decided.set()


class LoseFirst:
    """Loses what comes to a point, so many times."""

    def __init__(self, times):
        self._left = times

    async def __call__(self, _):
        self._left -= 1
        return self._left < 0

    async def was_met(self):
        return self._left <= 0


def _opened():
    event = asyncio.Event()
    event.set()
    return event


class Tunnel:
    """A port in front of another one."""

    def __init__(self, target_port):
        self.target_port = target_port
        self.port = 0
        self._there = _opened()
        self._back = _opened()
        self._writers = set()
        self._tasks = set()

    async def start(self):
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def close(self):
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.cut()  # a task that had not begun has ended nothing
        await self._server.wait_closed()

    def stall(self, *, only_back=False):
        """Let nothing pass, or nothing that is answered; no connection ends."""
        self._back.clear()
        if not only_back:
            self._there.clear()

    def go_on(self):
        """Let everything pass, late as it is."""
        self._back.set()
        self._there.set()

    def heal(self):
        """End the connections of before, and let new ones pass."""
        self.cut()
        self.go_on()

    def cut(self):
        """End all connections."""
        for writer in list(self._writers):
            writer.transport.abort()

    def _accept(self, reader, writer):
        """Note a connection as it comes, so that `close` knows of it before anything is carried."""
        self._writers.add(writer)
        task = asyncio.create_task(self._serve_until_broken(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve_until_broken(self, reader, writer):
        try:
            with suppress(*BROKEN):
                await self.serve(reader, writer)
        finally:
            await self._end(writer)

    async def _end(self, writer):
        self._writers.discard(writer)
        writer.transport.abort()
        with suppress(*BROKEN):
            await writer.wait_closed()

    async def serve(self, reader, writer, first=b""):
        """Carry bytes both ways until one side ends."""
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        self._writers.add(there_writer)
        there_writer.write(first)
        ways = [
            asyncio.create_task(self._carry(reader, there_writer, self._there)),
            asyncio.create_task(self._carry(there_reader, writer, self._back)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            await self._end(there_writer)

    async def _carry(self, reader, writer, is_open):
        with suppress(*BROKEN):
            while data := await reader.read(CHUNK):
                await is_open.wait()
                writer.write(data)
                await writer.drain()


class AdminProxy(Tunnel):
    """A port in front of a broker; a coordinator's calls stop at its points."""

    def __init__(self, target_port):
        super().__init__(target_port)
        self.points = {}
        """What decides about a call, by the name of the point."""
        self.calls = []
        """Those that the coordinator has made and that were let through."""
        self.repeated = set()
        """The names of the calls that reach the broker twice."""

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def gate(self, point):
        """Hold the calls that come to a point."""
        gate = self.points[point] = Gate()
        return gate

    def made(self, name):
        """Return the calls of this name that have reached the broker."""
        return [call for call in self.calls if call.name == name]

    async def done(self, name):
        """Wait until the calls of this name are over: a broker may act before its answer comes."""

        async def are_over():
            return all(call.is_over for call in self.made(name))

        await eventually(are_over, f"the calls of {name} are answered")
        return self.made(name)

    async def replay(self, call):
        """Make a call once more, by itself; return what is answered for each partition."""
        again = Call(call.name, call.request)
        await self._exchange(again)
        return again.results

    async def serve(self, reader, writer, first=b""):
        head = await reader.readuntil(b"\r\n\r\n")
        if b" /admin/" not in head.partition(b"\r\n")[0]:
            await super().serve(reader, writer, head)
            return
        for number in count():
            if number:
                head = await reader.readuntil(b"\r\n\r\n")
            call = Call(_name(head), head + await reader.readexactly(_length(head)))
            for _ in range(1 + (call.name in self.repeated)):
                if not await self._passes("before", call):
                    return
                self.calls.append(call)
                await self._exchange(call)
            if not await self._passes("after", call):
                return
            await self._back.wait()
            writer.write(call.answer)
            await writer.drain()

    async def _passes(self, phase, call):
        await self._there.wait()
        return await self._is_let(phase, call)

    async def _is_let(self, phase, call):
        decide = self.points.get(f"{phase}:{call.name}")
        return decide is None or await decide(call)

    async def _exchange(self, call):
        call.is_over = False
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.target_port)
            self._writers.add(writer)
            try:
                writer.write(call.request)
                await writer.drain()
                head = await reader.readuntil(b"\r\n\r\n")
                answer = head + await reader.readexactly(_length(head))
                if await self._is_let("answered", call):
                    call.answer = answer
            finally:
                await self._end(writer)
        finally:
            call.is_over = True


def _name(head):
    return head.split(b" ", 2)[1].rpartition(b"/")[2].decode()


def _length(head):
    match = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return int(match[1]) if match else 0
