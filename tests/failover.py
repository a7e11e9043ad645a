"""A Redis with a replica behind one address, switched over while every connection stays open."""

import asyncio
from contextlib import asynccontextmanager

from partq.testing import eventually
from partq.testing.redis_server import RedisServer
from tests.faults.proxy import Tunnel

WAIT_S = 60.0


class FailoverPair:
    """Two servers of one program; the address leads to the one that is master.

    The connections of before stay open at the server that was demoted, as behind a Service, a
    load balancer or DNS.
    """

    def __init__(self, program=None):
        self._program = program

    @asynccontextmanager
    async def started(self, directory):
        with RedisServer(self._program) as self.master, RedisServer(self._program) as self.replica:
            at_once = {"repl-diskless-sync": "no", "repl-ping-replica-period": "1"}
            await asyncio.to_thread(self.master.start, directory / "master", config=at_once)
            await asyncio.to_thread(self.replica.start, directory / "replica")
            await _ask(self.replica, f"REPLICAOF 127.0.0.1 {self.master.port}")
            await self._until(self.replica, "master_link_status", "up")
            self._tunnel = await Tunnel(self.master.port).start()
            try:
                yield self
            finally:
                await self._tunnel.close()

    @property
    def url(self):
        return f"redis://127.0.0.1:{self._tunnel.port}/0"

    async def switch_over(self, *, follows=True):
        """Make the replica the master; nothing that was confirmed is lost, no connection ends.

        `follows`: the address leads there at once, for connections that are opened from now on.
        """
        await _ask(self.master, "FAILOVER")
        await self._until(self.master, "role", "slave")
        await self._until(self.replica, "role", "master")
        if follows:
            self.follow()

    def follow(self):
        """Have the address lead to the new master."""
        self._tunnel.target_port = self.replica.port

    async def _until(self, server, field, value):
        async def is_so():
            return (await _replication(server)).get(field) == value

        await eventually(is_so, f"{field} {value} of {server.port}")


async def _replication(server):
    """Return what a server says of its part in the replication."""
    lines = (await _ask(server, "INFO replication")).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


async def _ask(server, command):
    """Send a command on a connection of its own; return what is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(f"{command}\r\n".encode())
        await writer.drain()
        first = (await reader.readline()).decode()
        return (await reader.readexactly(int(first[1:]))).decode() if first[0] == "$" else first
    finally:
        writer.transport.abort()
