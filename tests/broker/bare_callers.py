"""Bare connections to a broker, which send what they like."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager, suppress

WAIT_S = 60.0


def address(running):
    return "127.0.0.1", int(running.url.rpartition(":")[2])


def head(method, path, *lines):
    """Return a request up to its body."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *lines, "", ""]).encode()


def bearer(token):
    return f"Authorization: Bearer {token}"


class Caller:
    """A bare connection, which sends what it likes."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, running):
        return cls(*await asyncio.open_connection(*address(running)))

    async def send(self, data):
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self):
        """Read one answer; return its status, headers and text."""
        async with asyncio.timeout(WAIT_S):
            top = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = top.strip().split("\r\n")
            headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
            text = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(first.split()[1]), headers, text.decode()

    async def code(self):
        status, _, text = await self.answer()
        return status, json.loads(text)["error"]["code"]

    async def ended(self):
        """Wait until the server has closed the connection."""
        try:
            async with asyncio.timeout(WAIT_S):
                while await self.reader.read(65536):
                    pass
        except ConnectionError:
            pass

    async def close(self):
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


@asynccontextmanager
async def bare_callers():
    """Return what opens connections, which are closed at the end."""
    async with AsyncExitStack() as stack:

        async def open_one(running):
            caller = await Caller.open(running)
            stack.push_async_callback(caller.close)
            return caller

        yield open_one
