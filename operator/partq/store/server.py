"""One Redis server: a connection per channel, which run of it answers, what it says of itself."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from redis.asyncio.connection import AbstractConnection
from redis.exceptions import RedisError, ResponseError

from partq.errors import SettingsError, StoreUnavailableError
from partq.store import lua
from partq.store.fail_point import FailPoint
from partq.store.pipelined_connection import (
    FORBIDDEN,
    OpenConnection,
    PendingCommand,
    PipelinedConnection,
    Reply,
    not_sent,
    pack,
)

MIN_VERSION = (6, 2)
FULL_SHARE = 0.8
"""Appends stop at this share of `maxmemory`: the rest is for acks, claims and records."""
SCARCE_MEMORY_SHARE = 0.7
"""From this share on logs keep less of what is acknowledged."""

OVERFULL_SHARE = 0.95
"""Deliveries that have to be recorded stop at this share: nothing else grows by then."""


class Channel(Enum):
    """Which connection carries a call: no channel waits for another."""

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
    """State of a server, or of all nodes of a cluster: the worst value of each field."""

    run_id: str
    version: str
    maxmemory_bytes: int
    """0: no limit."""
    used_memory_bytes: int
    eviction_policy: str
    appendonly: bool
    appendfsync: str
    """`always`, `everysec`, `no`; empty when the server does not let us ask."""
    aof_bytes: int
    """Of the append-only file; 0: it keeps none. While it is rewritten, a second one grows."""
    clocks_ms: Mapping[str, int]
    """The clock of each server as it answered, in unix ms, by the server's name."""
    is_cluster: bool = False
    """Whether the server is a node of a Redis Cluster."""

    @property
    def is_nearly_full(self) -> bool:
        """Tell whether appends have to stop: `Log.append(room_bytes=0)` does that."""
        return 0 < self.maxmemory_bytes * FULL_SHARE <= self.used_memory_bytes

    @property
    def is_scarce(self) -> bool:
        """Tell whether messages that are acknowledged have to make room."""
        return 0 < self.maxmemory_bytes * SCARCE_MEMORY_SHARE <= self.used_memory_bytes

    @property
    def is_overfull(self) -> bool:
        """Tell whether deliveries have to stop that need an audit record."""
        return 0 < self.maxmemory_bytes * OVERFULL_SHARE <= self.used_memory_bytes

    def check_usable(self) -> None:
        """Raise SettingsError when the server cannot be trusted with messages."""
        if _version(self.version) < MIN_VERSION:
            raise SettingsError(f"store: Redis {self.version}; 6.2 or newer is needed")
        if self.eviction_policy != "noeviction":
            raise SettingsError(
                f"store: maxmemory-policy is {self.eviction_policy}: Redis would delete messages; "
                "set it to noeviction"
            )


class StoreServer:
    """One server, and this process's connections to it."""

    def __init__(
        self,
        name: str,
        *,
        make_connection: Callable[[], AbstractConnection],
        timeout_s: float,
        fail_point: FailPoint | None,
        on_replaced: Callable[["StoreServer"], None],
        on_doubt: Callable[["StoreServer", int | None], None],
    ) -> None:
        self.name = name
        """Host and port."""
        self.run_epoch = 0
        """Grows whenever a connection finds another server, or another run of it."""
        self.link = 0
        """Grows whenever the connections opened so far are of no use any more."""
        self.replica_count = 0
        self._make_connection = make_connection
        self._timeout_s = timeout_s
        self._on_replaced = on_replaced
        self._on_doubt = on_doubt
        self._identity: tuple[str, str] | None = None
        self._scripts = lua.load_scripts(MIN_VERSION)
        self._connections = {
            channel: PipelinedConnection(self, timeout_s, fail_point) for channel in Channel
        }

    @property
    def run_name(self) -> str:
        """Which run of which server has answered last; empty: none has."""
        return ":".join(name[:16] for name in self._identity or ())

    async def close(self) -> None:
        """Fail every call without an answer, and close all connections."""
        for connection in self._connections.values():
            await connection.close()

    def run(
        self,
        script: str,
        keys: Sequence[str],
        args: Sequence[str | bytes | int],
        channel: Channel,
        *,
        needs_replica: bool,
    ) -> asyncio.Future[Reply]:
        """Send a script with the next pipeline; errors as `Store.run`."""
        loaded = self._scripts[script]
        command = pack("EVALSHA", loaded.sha, len(keys), *keys, *args)
        call = PendingCommand(
            script, command, self.run_epoch, _future(), loaded, needs_replica=needs_replica
        )
        self._connections[channel].submit(call)
        return call.answer

    def read(
        self,
        command: Sequence[str | bytes | int],
        channel: Channel = Channel.BULK,
        wait_s: float = 0.0,
    ) -> asyncio.Future[Reply]:
        """Send a plain command that writes nothing; errors and `wait_s` as `Store.read`."""
        operation = str(command[0]).lower()
        call = PendingCommand(operation, pack(*command), self.run_epoch, _future(), None, wait_s)
        self._connections[channel].submit(call)
        return call.answer

    async def info(self) -> StoreInfo:
        """Ask the server what it is; errors as `Store.read`."""
        answers = self.read(["INFO"]), self.read(["CONFIG", "GET", "appendfsync"])
        await asyncio.gather(*answers, return_exceptions=True)
        info = _parse_info(answers[0].result())
        self.replica_count = _replica_count(info)
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
            aof_bytes=int(info.get("aof_current_size", "0")),
            clocks_ms={self.name: int(info.get("server_time_usec", "0")) // 1000},
            is_cluster=info.get("cluster_enabled") == "1",
        )

    def leave(self) -> None:
        """Open a new connection for the next call of each channel; calls under way continue."""
        self.link += 1
        self._on_doubt(self, None)

    def doubt(self, slot: int | None) -> None:
        """As pipelined connections want it."""
        self._on_doubt(self, slot)

    async def connect(self) -> OpenConnection:
        """Open a connection, and notice when it leads to another run of the server."""
        link = self.link
        connection = self._make_connection()
        try:
            async with asyncio.timeout(self._timeout_s):
                await connection.connect()  # type: ignore[no-untyped-call]  # as it is
                await connection.send_packed_command(pack("INFO"), check_health=False)
                info = _parse_info(await connection.read_response())
            if info.get("loading", "0") != "0":
                raise StoreUnavailableError(
                    f"store: Redis at {self.name} is loading its data; it is asked again"
                )
            if info.get("role") == "slave" and info.get("cluster_enabled") != "1":
                # What it answers to a read may be old. Of a cluster, the map names the masters.
                raise not_sent(
                    f"Redis at {self.name} is a replica of {info.get('master_host')}:"
                    f"{info.get('master_port')}; expected the master: the address must lead there"
                )
        except (RedisError, OSError) as error:
            await connection.disconnect(nowait=True)
            if isinstance(error, ResponseError) and "in cluster mode" in str(error):
                raise SettingsError(
                    "store: the URL of Redis names a database, and a Redis Cluster has only "
                    "database 0; leave the number away"
                ) from error
            raise StoreUnavailableError(
                f"store: cannot connect to Redis: {type(error).__name__} {error}; check whether it "
                "runs and its URL is right; it is tried again",
                is_forbidden=isinstance(error, FORBIDDEN),
            ) from error
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        if self._meet(info):
            link = self.link
        return OpenConnection(connection, link)

    def _meet(self, info: Mapping[str, str]) -> bool:
        """Note which server answers; return whether that is another run than before."""
        self.replica_count = _replica_count(info)
        identity = (info["run_id"], info.get("master_replid", ""))
        if identity == self._identity:
            return False
        is_first, self._identity = self._identity is None, identity
        self._scripts = lua.load_scripts(_version(info["redis_version"]))
        if not is_first:
            self.run_epoch += 1
            self.link += 1
            self._on_replaced(self)
        return not is_first


def worst(infos: Sequence[StoreInfo]) -> StoreInfo:
    """Return what holds for all nodes of a cluster together."""
    fullest = max(infos, key=lambda info: info.used_memory_bytes / (info.maxmemory_bytes or 1e18))
    syncs = ("no", "", "everysec", "always")
    return StoreInfo(
        run_id=infos[0].run_id,
        version=min((info.version for info in infos), key=_version),
        maxmemory_bytes=fullest.maxmemory_bytes,
        used_memory_bytes=fullest.used_memory_bytes,
        eviction_policy=next(
            (info.eviction_policy for info in infos if info.eviction_policy != "noeviction"),
            "noeviction",
        ),
        appendonly=all(info.appendonly for info in infos),
        appendfsync=min((info.appendfsync for info in infos), key=syncs.index),
        aof_bytes=max(info.aof_bytes for info in infos),
        clocks_ms={name: at_ms for info in infos for name, at_ms in info.clocks_ms.items()},
        is_cluster=infos[0].is_cluster,
    )


def _future() -> asyncio.Future[Reply]:
    return asyncio.get_running_loop().create_future()


def _parse_info(text: bytes) -> dict[str, str]:
    lines = [line.partition(":") for line in text.decode().splitlines()]
    return {name: value for name, _, value in lines}


def _replica_count(info: Mapping[str, str]) -> int:
    """Return how many replicas are there and up to date enough to be sent every write."""
    fields = [value for name, value in info.items() if re.fullmatch(r"slave\d+", name)]
    return sum("state=online" in value for value in fields)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])
