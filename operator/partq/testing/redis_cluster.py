"""A separate Redis Cluster, on loopback, for tests: masters, and a replica of each."""

import re
import socket
import time
from pathlib import Path
from typing import Self

from partq.errors import SettingsError
from partq.store.cluster_slots import SLOT_COUNT
from partq.testing.redis_server import RedisServer
from partq.testing.tcp_ports import HOST, free_port

_POLL_S = 0.02
_COMMAND_TIMEOUT_S = 60.0
_TIMEOUT_S = 60.0
_NODE_TIMEOUT_MS = 30_000
_BUS_OFFSET = 10_000
"""Each node has a second port, so far above its own."""


class RedisCluster:
    """The processes of one cluster. They keep what they have confirmed, as a `RedisServer` does.

    Args:
        master_count: how many masters share the slots, at least 3.
        has_replicas: whether each has a replica, which takes over when its master is gone.
        program: the redis-server; None: the one that is found.
    """

    def __init__(
        self,
        *,
        master_count: int = 3,
        has_replicas: bool = True,
        program: Path | None = None,
    ) -> None:
        self._data_dir = Path()
        self.masters = [RedisServer(program) for _ in range(master_count)]
        """The servers that begin as masters; slots are spread over them in equal runs."""
        self.replicas = [RedisServer(program) for _ in range(master_count * has_replicas)]
        """The servers that begin as replicas, in the order of their masters."""

    @property
    def url(self) -> str:
        """All nodes as one URL: any of them may be dead."""
        hosts = ",".join(f"{HOST}:{node.port}" for node in self._nodes)
        return f"redis://{hosts}"

    def start(self, data_dir: Path) -> None:
        """Start the processes, join them, and return when every slot is served.

        Raises:
            SettingsError: there is no redis-server, or they do not come together; none runs.
        """
        self._data_dir = data_dir
        try:
            for node in self._nodes:
                self.start_node(node, port=free_port(beside=_BUS_OFFSET))
            self._join()
        except BaseException:
            self.stop()
            raise

    def start_node(self, node: RedisServer, *, port: int = 0) -> None:
        """Start the process of a node on what it has kept; errors as `RedisServer.start`.

        `port` 0: as before.
        """
        config = {
            "cluster-enabled": "yes",
            "cluster-node-timeout": str(_NODE_TIMEOUT_MS),
            "repl-diskless-sync-delay": "0",
        }
        folder = self._data_dir / str(self._nodes.index(node))
        node.start(folder, port=port, config=config)

    def stop(self) -> None:
        """End all processes; a repeat does nothing."""
        for node in self._nodes:
            node.kill()  # nobody reads again what they hold

    def set_node_timeout(self, timeout_ms: int) -> None:
        """Let a node be silent for this long before the others call it dead and replace it.

        At first 30,000 ms: a busy machine must not cause a failover that nobody has asked for.
        """
        for node in self._nodes:
            command(node.port, "CONFIG", "SET", "cluster-node-timeout", str(timeout_ms))

    def await_takeover(self, number: int, *, by_force: bool = False) -> None:
        """Wait until the replica of master `number`, which is dead, serves in its place.

        `by_force`: at once, and whatever it has; the others are not asked, nor the time awaited.

        Raises:
            SettingsError: not so within a minute.
        """
        replica = self.replicas[number]
        if by_force:
            command(replica.port, "CLUSTER", "FAILOVER", "TAKEOVER")
        _wait_for(replica, "role:master", "INFO", "replication")
        _wait_for(replica, "cluster_state:ok", "CLUSTER", "INFO")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def _nodes(self) -> list[RedisServer]:
        return [*self.masters, *self.replicas]

    def _join(self) -> None:
        count = len(self.masters)
        bounds = [SLOT_COUNT * number // count for number in range(count + 1)]
        for number, master in enumerate(self.masters):
            slots = map(str, range(bounds[number], bounds[number + 1]))
            command(master.port, "CLUSTER", "ADDSLOTS", *slots)
        for number, node in enumerate(self._nodes, 1):
            command(node.port, "CLUSTER", "SET-CONFIG-EPOCH", str(number))
        first, *others = self._nodes
        for node in others:
            command(first.port, "CLUSTER", "MEET", HOST, str(node.port))
        for node in self._nodes:
            _wait_for(node, rf"cluster_known_nodes:{len(self._nodes)}\b", "CLUSTER", "INFO")
        for master, replica in zip(self.masters, self.replicas, strict=False):
            command(replica.port, "CLUSTER", "REPLICATE", command(master.port, "CLUSTER", "MYID"))
        for node in self._nodes:
            _wait_for(node, "cluster_state:ok", "CLUSTER", "INFO")
            for replica in self.replicas:
                _wait_for(node, rf":{replica.port}@\S+ (myself,)?slave ", "CLUSTER", "NODES")
        for master in self.masters[: len(self.replicas)]:
            _wait_for(master, "state=online", "INFO", "replication")


def command(port: int, *words: str) -> str:
    """Send one command to the server on a port of loopback, and return its answer as text.

    Raises:
        SettingsError: it answers with an error.
        OSError: it does not answer within 60 s.
    """
    with socket.create_connection((HOST, port), timeout=_COMMAND_TIMEOUT_S) as connection:
        parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
        connection.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
        with connection.makefile("rb") as answers:
            head = answers.readline().decode().rstrip()
            if head.startswith("-"):
                raise SettingsError(f"redis-server on port {port}: {' '.join(words[:3])}: {head}")
            return answers.read(int(head[1:])).decode() if head.startswith("$") else head[1:]


def _wait_for(node: RedisServer, pattern: str, *words: str) -> None:
    """Ask a node until its answer has what matches `pattern`."""
    end = time.monotonic() + _TIMEOUT_S
    while not re.search(pattern, answer := command(node.port, *words)):
        if time.monotonic() > end:
            raise SettingsError(
                f"redis-server on port {node.port}: after {_TIMEOUT_S:g} s {' '.join(words)} lacks "
                f"{pattern!r}: {answer}"
            )
        time.sleep(_POLL_S)
