"""The simulated Redis server, and the connection that the real store uses to reach it."""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha1
from typing import Any, Final, Self, cast

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import NoScriptError, OutOfMemoryError

from partq.errors import StoreUnavailableError
from partq.lab.simulate.machine.loop import PROCESS, Process, SimLoop
from partq.lab.simulate.machine.memory_redis import MemoryRedis, compile_script
from partq.lab.simulate.machine.network import Network
from partq.store import lua
from partq.store.connection import Store
from partq.store.pipelined_connection import Reply
from partq.store.retries import OPEN_RETRY_S

NAME: Final = "redis"
EPOCH_S: Final = 1_800_000_000.0
"""What Redis's clock shows at the start."""
TIMEOUT_S: Final = 1.0
MAX_BYTES: Final = 1_000_000
VERSION: Final = "7.2.0"

BLOCKED: Final = object()

MakeMemory = Callable[[Callable[[], float]], MemoryRedis]
"""Makes the server's keys, given what its clock shows."""
Script = Callable[[Process, str, Sequence[bytes], Sequence[bytes], Any], None]


@dataclass(eq=False, slots=True)
class _StreamWait:
    """A client that waits for a stream to grow."""

    command: list[bytes]
    answer: Callable[[Reply], None]


class SimRedisServer:
    """One run after the other of the server: its clock, its keys, what it forgets."""

    def __init__(
        self,
        loop: SimLoop,
        network: Network,
        rng: random.Random,
        make_memory: MakeMemory = MemoryRedis,
    ) -> None:
        self.ahead_s = 0.0
        """How far its clock was set forward, or back."""
        self.is_up = True
        self.stalled_until = 0.0
        self.used_share = 0.0
        """Of its memory, what is used: at 1 it refuses whatever takes more."""
        self.on_script: Script | None = None
        """Told of each script with its answer."""
        self.to_lose: dict[str, Callable[[Process, Sequence[bytes]], None]] = {}
        """Scripts whose next answer is lost, each with what is called then: process and keys."""
        self._loses = False
        """Whether the answer that is being made is lost."""
        self.memory = make_memory(self.time)
        self._loop = loop
        self._network = network
        self._rng = rng
        self._runs = 1
        self._connections: dict[SimConnection, None] = {}
        self._readers: dict[_StreamWait, None] = {}
        scripts = lua.load_scripts((7, 2, 0))
        self._by_sha = {
            script.sha.encode(): compile_script(script.name, script.source)
            for script in scripts.values()
        }
        self._passing = {s.name for s in scripts.values() if s.source.startswith("#!lua")}
        """What works on a full server, too."""
        # As a server that others have used before: each of its later runs has to learn them.
        self._known = dict(self._by_sha)

    def time(self) -> float:
        """Return Redis's unix time in seconds."""
        return EPOCH_S + self._loop.time() + self.ahead_s

    # ---- what happens to it ---------------------------------------------------------------------

    def stop(self) -> None:
        """Die: connections end, blocked readers hear nothing more."""
        self.is_up = False
        self._readers.clear()
        for connection in [*self._connections]:
            connection.reset()

    def start(self) -> None:
        """Run again, if it does not: its scripts are forgotten."""
        if not self.is_up:
            self._known.clear()
            self._runs += 1
            self.is_up = True

    # ---- what it answers ------------------------------------------------------------------------

    def attach(self, connection: "SimConnection") -> int:
        """Take a connection, and return the number of this run of the server.

        Raises:
            ConnectionRefusedError: it is down.
        """
        if not self.is_up:
            raise ConnectionRefusedError(NAME)
        self._connections[connection] = None
        return self._runs

    def serves(self, run: int) -> bool:
        """Say whether a run of the server still continues."""
        return self.is_up and run == self._runs

    def connections_of(self, name: str) -> "list[SimConnection]":
        """Return the open connections of the processes of a name, the oldest first."""
        return [each for each in self._connections if each.is_of(name)]

    def detach(self, connection: "SimConnection") -> None:
        """Forget a connection."""
        self._connections.pop(connection, None)

    def execute(
        self, process: Process, command: list[bytes], late: Callable[[Reply], None]
    ) -> Reply:
        """Carry out a command and return its answer; `BLOCKED`: `late` will be told."""
        match command[0]:
            case b"EVALSHA":
                return self._run_script(process, command)
            case b"XREAD":
                found = self.memory.command(b"XREAD", command[1:])
                if found is not None:
                    return found
                reader = _StreamWait(command, late)
                self._readers[reader] = None
                wait_s = int(command[command.index(b"BLOCK") + 1]) / 1000
                self._loop.at(self._loop.time() + wait_s, partial(self._give_up, reader))
                return BLOCKED
            case b"INFO":
                return self._info()
            case b"CONFIG":
                return [b"appendfsync", b"always"]
            case b"SCRIPT":
                sha = sha1(command[2], usedforsecurity=False).hexdigest().encode()
                self._known[sha] = self._by_sha[sha]
                return sha
            case name:
                return self.memory.command(name, command[1:])

    def _run_script(self, process: Process, command: list[bytes]) -> Reply:
        script = self._known.get(command[1])
        if script is None:
            return NoScriptError("No matching script")
        if self.used_share >= 1.0 and script.name not in self._passing:
            return OutOfMemoryError("command not allowed when used memory > 'maxmemory'.")
        count = 3 + int(command[2])
        keys, args = command[3:count], command[count:]
        answer = self.memory.run(script, keys, args)
        if self.on_script is not None:
            self.on_script(process, script.name, keys, args, answer)
        if (lost := self.to_lose.pop(script.name, None)) is not None:
            self._loses = True
            lost(process, keys)
        if script.name == "add_event" and self._readers:
            for reader in [*self._readers]:
                found = self.memory.command(b"XREAD", reader.command[1:])
                if found is not None:
                    del self._readers[reader]
                    reader.answer(found)
        return answer

    def take_loss(self) -> bool:
        """Say once whether the answer that was made last is lost."""
        loses, self._loses = self._loses, False
        return loses

    def _give_up(self, reader: _StreamWait) -> None:
        if reader in self._readers:
            del self._readers[reader]
            reader.answer(None)

    def _info(self) -> bytes:
        return (
            f"redis_version:{VERSION}\r\nrun_id:run-{self._runs}\r\nmaxmemory:{MAX_BYTES}\r\n"
            f"used_memory:{round(self.used_share * MAX_BYTES)}\r\n"
            "maxmemory_policy:noeviction\r\naof_enabled:1\r\nloading:0\r\n"
            f"master_replid:replid-{self._runs}\r\n"
        ).encode()


class SimConnection:
    """What the store's pipelined connection uses of a connection of redis-py."""

    def __init__(self, server: SimRedisServer, network: Network) -> None:
        self.is_connected = False
        self._server = server
        self._network = network
        self._process = PROCESS.get()
        self._answers: deque[Reply] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._last_in = self._last_out = 0.0
        self._run = 0
        self._held: list[list[list[bytes]]] | None = None
        """Pipelines that are on their way, while the connection carries nothing."""

    def is_of(self, name: str) -> bool:
        """Say whether a living process of that name has opened it."""
        return self._process.is_alive and self._process.name == name

    async def connect(self) -> None:
        """Connect; the way there and back.

        Raises:
            ConnectionError: the server is down.
        """
        await self._network.arrival(self._process.name, NAME)
        self._run = self._server.attach(self)
        self.is_connected = True

    async def send_packed_command(self, pieces: Sequence[bytes], check_health: bool = True) -> None:
        """Send a pipeline; everything of it arrives together."""
        if not self.is_connected:
            raise ConnectionResetError(NAME)
        if not self._process.is_alive:
            return
        commands = _commands(pieces)
        if self._held is not None:
            self._held.append(commands)
            return
        name = self._process.name
        not_before = max(self._last_in, self._server.stalled_until)
        self._last_in = self._network.pass_on(
            name, NAME, lambda: self._arrive(commands), not_before
        )

    async def read_response(self) -> Reply:
        """Return the next answer, or raise it."""
        while not self._answers:
            if not self.is_connected:
                raise ConnectionResetError(NAME)
            self._waiter = self._network.loop.create_future()
            await self._waiter
        answer = self._answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def disconnect(self, nowait: bool = False) -> None:
        """End the connection."""
        self.reset()

    def stand_still(self) -> None:
        """Carry nothing from now on, while all other connections continue."""
        self._held = []

    def deliver_late(self) -> int:
        """Let arrive what was sent while it stood still: the senders have given it up.

        Returns how many commands that were.
        """
        self.reset()
        held, self._held = self._held or [], []
        for commands in held:
            if self._server.serves(self._run):
                for each in commands:
                    self._server.execute(self._process, each, lambda _: None)
        return sum(map(len, held))

    def reset(self) -> None:
        """End the connection as seen from either side; what was not read is lost."""
        if self.is_connected:
            self.is_connected = False
            self._answers.clear()
            self._server.detach(self)
            self._wake()

    def _arrive(self, commands: list[list[bytes]]) -> None:
        if not self._server.serves(self._run):
            return
        answers = [self._server.execute(self._process, each, self._send_late) for each in commands]
        if self._server.take_loss() or self._network.is_answer_lost():
            self.reset()
        elif answers[-1] is not BLOCKED:
            self._send_back(answers)

    def _send_late(self, answer: Reply) -> None:
        self._send_back([answer])

    def _send_back(self, answers: list[Reply]) -> None:
        def arrive() -> None:
            if self.is_connected:
                self._answers.extend(answers)
                self._wake()

        self._last_out = self._network.pass_on(NAME, self._process.name, arrive, self._last_out)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _commands(pieces: Sequence[bytes]) -> list[list[bytes]]:
    """Take a pipeline apart that `pipelined_connection.pack` has put together."""
    commands = []
    at = 0
    while at < len(pieces):
        count = int(pieces[at][1:-2])
        commands.append(list(pieces[at + 2 : at + 1 + 3 * count : 3]))
        at += 1 + 3 * count
    return commands


class SimStore(Store):
    """The real store, over simulated connections."""

    def _connections(self, _url: str) -> Callable[[], AbstractConnection]:
        loop = cast(SimLoop, asyncio.get_running_loop())
        return lambda: cast(AbstractConnection, SimConnection(loop.redis, loop.network))

    @classmethod
    async def wait_for(cls) -> Self:
        """Connect as every process does: waiting for Redis as long as it takes."""
        while True:
            with suppress(StoreUnavailableError):
                return await cls.open("redis://simulated")
            await asyncio.sleep(OPEN_RETRY_S)
