"""The connections of one process to one Redis, and what it says of itself."""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Self

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from partq.errors import SettingsError, StoreUnavailableError
from partq.store import lua
from partq.store.fail_point import FailPoint
from partq.store.pump import Call, Connected, Pump, pack

MIN_VERSION = (6, 2)
FULL_SHARE = 0.8
"""Appends stop at this share of `maxmemory`: the rest is for acks, claims and records."""

_READ_BYTES = 1024 * 1024


class Lane(Enum):
    """Which connection carries a call: no lane waits for another."""

    APPEND = "append"
    """Appends and flushes of acks: what belongs to messages shares round trips and fsyncs."""
    CONTROL = "control"
    """Leases, claims, binds, commits."""
    BULK = "bulk"
    """Reading logs, trimming, plain reads."""
    EVENTS = "events"
    """Blocking reads."""


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What the server says of itself."""

    run_id: str
    version: str
    maxmemory_bytes: int
    """0: no limit."""
    used_memory_bytes: int
    eviction_policy: str
    appendonly: bool
    appendfsync: str
    """`always`, `everysec`, `no`; empty when the server does not let us ask."""

    @property
    def is_nearly_full(self) -> bool:
        """Tell whether appends have to stop: `Log.append(max_bytes=0)` does that."""
        return 0 < self.maxmemory_bytes * FULL_SHARE <= self.used_memory_bytes


class Store:
    """One per process. Open it with `Store.open`, close it with `close`."""

    def __init__(
        self, url: str, *, prefix: str, timeout_s: float, fail_point: FailPoint | None
    ) -> None:
        self.prefix = prefix
        self.on_restart: list[Callable[[], None]] = []
        """Called, before anything else is sent, when the server is not the one it was."""
        self._timeout_s = timeout_s
        try:
            self._factory = ConnectionPool.from_url(
                url,
                protocol=2,
                client_name="partq",
                socket_connect_timeout=timeout_s,
                socket_timeout=None,  # the pump has one time-out for a whole pipeline
                socket_read_size=_READ_BYTES,
                retry=Retry(NoBackoff(), 0),  # a write must not be sent twice behind our back
            )
        except ValueError as error:
            # The URL itself may hold a password.
            raise SettingsError(f"store: the URL of Redis: {error}") from error
        self._run_epoch = 0
        self._identity: tuple[str, str] | None = None
        self._scripts = lua.load_scripts(MIN_VERSION)
        self._pumps = {
            lane: Pump(self._connect, lambda: self._run_epoch, timeout_s, fail_point)
            for lane in Lane
        }

    @classmethod
    async def open(
        cls,
        url: str,
        *,
        prefix: str = "partq",
        timeout_s: float = 5.0,
        fail_point: FailPoint | None = None,
    ) -> Self:
        """Connect, and check that the server is one that can be trusted with messages.

        `timeout_s` bounds each round trip. `fail_point` ends the process at a chosen call.

        Raises:
            StoreUnavailableError: it cannot be reached, or is still loading its data.
            SettingsError: the URL is none, the server is too old, or it would evict messages.
        """
        store = cls(url, prefix=prefix, timeout_s=timeout_s, fail_point=fail_point)
        try:
            _check_usable(await store.info())
        except BaseException:
            await store.close()
            raise
        return store

    async def close(self) -> None:
        """Fail every call without an answer, and close all connections."""
        for pump in self._pumps.values():
            await pump.close()

    @property
    def run_epoch(self) -> int:
        """Grows whenever a connection finds another server, or another run of it."""
        return self._run_epoch

    async def run(
        self,
        script: str,
        keys: Sequence[str],
        args: Sequence[str | bytes | int] = (),
        *,
        lane: Lane = Lane.CONTROL,
    ) -> Any:
        """Run `scripts/{script}.lua` and return Redis's answer: int, bytes, None or a list.

        Waits for at most the pipeline before it and its own: twice the time-out.

        Raises:
            StoreUnavailableError: no answer, or an error; `is_outcome_known` says whether
                nothing has happened for certain.
            QuotaExceededError: Redis is full; nothing was written.
        """
        loaded = self._scripts[script]
        command = pack("EVALSHA", loaded.sha, len(keys), *keys, *args)
        call = Call(script, command, self._run_epoch, _future(), loaded)
        self._pumps[lane].submit(call)
        return await call.answer

    async def read(
        self, *command: str | bytes | int, lane: Lane = Lane.BULK, wait_s: float = 0.0
    ) -> Any:
        """Send a plain command that writes nothing; errors as in `run`.

        A command that blocks says by `wait_s` how long, in seconds, and takes `Lane.EVENTS`.
        """
        return await self._submit(command, lane, wait_s)

    async def read_all(self, *commands: Sequence[str | bytes | int]) -> list[Any]:
        """Send plain commands that write nothing in one pipeline; errors as in `run`."""
        return await asyncio.gather(*(self._submit(each) for each in commands))

    def _submit(
        self, command: Sequence[str | bytes | int], lane: Lane = Lane.BULK, wait_s: float = 0.0
    ) -> asyncio.Future[Any]:
        operation = str(command[0]).lower()
        call = Call(operation, pack(*command), self._run_epoch, _future(), None, wait_s)
        self._pumps[lane].submit(call)
        return call.answer

    async def info(self) -> StoreInfo:
        """Ask the server what it is; errors as in `run`."""
        answers = self._submit(["INFO"]), self._submit(["CONFIG", "GET", "appendfsync"])
        await asyncio.gather(*answers, return_exceptions=True)
        info = _parse_info(answers[0].result())
        # Hosted servers forbid CONFIG.
        found = answers[1].result() if answers[1].exception() is None else []
        return StoreInfo(
            run_id=info["run_id"],
            version=info["redis_version"],
            maxmemory_bytes=int(info["maxmemory"]),
            used_memory_bytes=int(info["used_memory"]),
            eviction_policy=info["maxmemory_policy"],
            appendonly=info.get("aof_enabled") == "1",
            appendfsync=found[1].decode() if len(found) > 1 else "",
        )

    def _make_connection(self) -> AbstractConnection:
        """Return a connection that is not open yet; the simulator has its own kind."""
        connection: AbstractConnection = self._factory.make_connection()  # type: ignore[no-untyped-call]  # as it is
        return connection

    async def _connect(self) -> Connected:
        """Open a connection, and notice when it leads to another run of the server."""
        connection = self._make_connection()
        try:
            async with asyncio.timeout(self._timeout_s):
                await connection.connect()  # type: ignore[no-untyped-call]  # as it is
                await connection.send_packed_command(pack("INFO"), check_health=False)
                info = _parse_info(await connection.read_response())
            if info.get("loading", "0") != "0":
                raise StoreUnavailableError("store: Redis is loading its data")
        except (RedisError, OSError) as error:
            await connection.disconnect(nowait=True)
            raise StoreUnavailableError(
                f"store: cannot connect to Redis: {type(error).__name__} {error}"
            ) from error
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        self._meet(info)
        return Connected(connection, self._run_epoch)

    def _meet(self, info: dict[str, str]) -> None:
        identity = (info["run_id"], info.get("master_replid", ""))
        if identity == self._identity:
            return
        is_first, self._identity = self._identity is None, identity
        self._scripts = lua.load_scripts(_version(info["redis_version"]))
        if not is_first:
            self._run_epoch += 1
            for notify in self.on_restart:
                notify()


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def _parse_info(text: bytes) -> dict[str, str]:
    lines = [line.partition(":") for line in text.decode().splitlines()]
    return {name: value for name, _, value in lines}


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


def _check_usable(info: StoreInfo) -> None:
    if _version(info.version) < MIN_VERSION:
        raise SettingsError(f"store: Redis {info.version}; 6.2 or newer is needed")
    if info.eviction_policy != "noeviction":
        raise SettingsError(
            f"store: maxmemory-policy is {info.eviction_policy}: Redis would delete messages; "
            "set it to noeviction"
        )
