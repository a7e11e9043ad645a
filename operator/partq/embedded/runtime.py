"""Queues on one machine: an embedded Redis, and processes in the place of pods."""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import aiohttp

from partq.core.group.group_type import GroupType
from partq.embedded.child import POLL_S, Child
from partq.embedded.data_dir import DataDir, QueueIdentity, QueueState, QueueTokens, write_private
from partq.embedded.provision import holds, provision
from partq.embedded.redis_process import answers_ping, choose_redis_server, render_config
from partq.embedded.tcp_ports import HOST, HeldPorts
from partq.errors import SettingsError, UnavailableError
from partq.path_names import quoted
from partq.resources import PartitionedQueue, Resources
from partq.settings import LEASE_TTL_S, PREFIX, RETIRE_AFTER_S
from partq.store.connection import Store
from partq.wire.calls.answers import UNSET, LayoutAnswer
from partq.wire.calls.replies import decode

log = logging.getLogger("partq.embedded")

MAX_BROKERS = 64
PROBE_TIMEOUT_S = 2.0
SERVED_TIMEOUT_S = 30.0
# Below the range from which Linux takes the local ports of outgoing connections: while a broker
# is being restarted, nobody else happens to sit on its port.
_FREE_PORTS = range(20_000, 30_000)


class BrokerChild(Child):
    """One broker process; it keeps its URL over restarts."""

    def __init__(self, name: str, *, port: int, log_file: Path, env: Mapping[str, str]) -> None:
        super().__init__(name, _partq("broker"), probe=self._is_ready, log_file=log_file, env=env)
        self.url = f"http://{HOST}:{port}"

    async def _is_ready(self) -> bool:
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PROBE_TIMEOUT_S)) as http,
                http.get(f"{self.url}/readyz") as response,
            ):
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False


@dataclass(frozen=True, slots=True)
class RunningQueue:
    """One queue with its processes."""

    namespace: str
    name: str
    uid: str
    tokens: QueueTokens
    groups: tuple[str, ...]
    client_assigned: frozenset[str]
    """The groups whose members choose their partitions."""
    with_sessions: frozenset[str]
    """The groups whose members lock sessions."""
    brokers: tuple[BrokerChild, ...]
    coordinator: Child
    is_created: bool = False
    """Whether it is a dead-letter queue that `deadLetter.create` asked for: no file declares it."""

    @property
    def url(self) -> str:
        """The brokers' URLs with commas between them, as the clients take it."""
        return ",".join(broker.url for broker in self.brokers)


class EmbeddedRuntime:
    """Everything that serves the queues of one file, in child processes that are kept running.

    Its data stays in `data_dir`, or in the Redis of `redis_url` that runs elsewhere, and is taken
    up by the next runtime there. `broker_count` and
    `lease_ttl_s` (seconds, 1 to 60) hold for every queue. With `keeps_partition_counts` a queue
    that is there keeps its number of partitions, whatever the file says. `retire_after_s`: how long
    a partition without keys stays at least. With a `port` the brokers
    listen on it and on those that follow, else on free ones.
    """

    def __init__(
        self,
        resources: Resources,
        data_dir: Path,
        *,
        broker_count: int | None = None,
        keeps_partition_counts: bool = False,
        retire_after_s: float = RETIRE_AFTER_S,
        port: int = 0,
        lease_ttl_s: float = LEASE_TTL_S,
        log_level: str = "info",
        redis_url: str | None = None,
    ) -> None:
        if broker_count is not None and not 1 <= broker_count <= MAX_BROKERS:
            raise SettingsError(f"brokers: got {broker_count}, expected 1 to {MAX_BROKERS}")
        self.queues: list[RunningQueue] = []
        # What is stored must be what runs: the coordinator waits for all brokers to be there.
        self._declared = frozenset(queue.key for queue in resources.queues)
        resources = resources.with_dead_letter_queues()
        self._resources = resources.with_replicas(broker_count) if broker_count else resources
        self._keeps_partition_counts = keeps_partition_counts
        self._retire_after_s = retire_after_s
        self._dir = DataDir(data_dir)
        self._port = port
        self._ports = HeldPorts(_FREE_PORTS)
        self._broker_ports: list[int] = []
        """Of those that are not started yet, in the order of the file."""
        self._lease_ttl_s = lease_ttl_s
        self._log_level = log_level
        self._redis: Child | None = None
        self._has_own_redis = redis_url is None
        self._redis_url = redis_url or ""

    @property
    def data_dir(self) -> Path:
        """Where everything is kept."""
        return self._dir.path

    @property
    def redis(self) -> Child:
        """The Redis process.

        Raises:
            SettingsError: this runtime has no Redis: not started, or Redis runs elsewhere.
        """
        if self._redis is None:
            raise SettingsError("the embedded runtime is not started, or uses another Redis")
        return self._redis

    @property
    def redis_url(self) -> str:
        """Where Redis listens, with its password."""
        return self._redis_url

    @property
    def brokers(self) -> list[BrokerChild]:
        """The brokers of all queues, in the order of the file."""
        return [broker for queue in self.queues for broker in queue.brokers]

    @property
    def coordinators(self) -> list[Child]:
        """The coordinators, one per queue."""
        return [queue.coordinator for queue in self.queues]

    def queue(self, name: str, namespace: str = "default") -> RunningQueue:
        """Return a queue that runs.

        Raises:
            SettingsError: no queue of this name runs here.
        """
        for queue in self.queues:
            if (queue.namespace, queue.name) == (namespace, name):
                return queue
        raise SettingsError(
            f"queue {namespace}/{name} does not run here; name one that was given at the start"
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start everything and return when messages can be published and consumed.

        Raises:
            SettingsError: the directory is held by another runtime, or a port is in use: then
                nothing was written. There is no redis-server, the Redis of `redis_url` cannot be
                used, or the resources do not fit the data there.
            UnavailableError: a process does not come up, or Redis does not answer; all are stopped
                again.
        """
        # What is refused leaves nothing behind: the ports before the first file.
        self._dir.refuse_if_held()
        try:
            self._choose_ports()
            self._dir.hold()
        except BaseException:
            self._ports.close()
            raise
        try:
            if self._has_own_redis:
                await self._start_redis()
            await self._start_queues()
        except BaseException:
            await self.stop()
            raise
        self._publish_state()

    def note_groups(self, queue: RunningQueue, groups: Iterable[str]) -> None:
        """Tell the other commands which groups a queue has by now: they can be removed."""
        names = tuple(sorted(groups))
        if names != queue.groups and queue in self.queues:
            self.queues[self.queues.index(queue)] = replace(queue, groups=names)
            self._publish_state()

    async def stop(self) -> None:
        """End every process in order, Redis last, and give the directory back."""
        # The coordinator first: nobody is to move partitions between brokers that go anyway.
        await _all(coordinator.stop() for coordinator in self.coordinators)
        await _all(broker.stop() for broker in self.brokers)
        if self._redis is not None:
            await self._redis.stop()
        self._ports.close()
        self._dir.let_go()

    def _publish_state(self) -> None:
        self._dir.publish_state(
            [
                QueueState(q.namespace, q.name, q.url, q.groups, q.tokens, is_created=q.is_created)
                for q in self.queues
            ]
        )

    async def _start_redis(self) -> None:
        port, password = self._free_port(), self._dir.redis_password()
        self._redis_url = f"redis://:{password}@{HOST}:{port}/0"
        config_file = self._dir.redis / "redis.conf"
        config = render_config(port=port, password=password, directory=self._dir.redis)
        write_private(config_file, config)
        server = await asyncio.to_thread(choose_redis_server, self._dir.redis)
        self._redis = Child(
            "redis",
            (str(server.path), str(config_file)),
            probe=lambda: answers_ping(port, password),
            log_file=self._dir.log("redis"),
            env=os.environ,
        )
        await self._redis.start()
        server.remember(self._dir.redis)

    async def _start_queues(self) -> None:
        store = await Store.open(self._redis_url)
        try:
            for queue in self._resources.queues:
                namespace, name = queue.key
                identity = self._dir.identity(namespace, name)
                await self._check_known(store, queue, identity)
                groups = await provision(
                    store,
                    queue,
                    self._resources,
                    uid=identity.uid,
                    keeps_partition_count=self._keeps_partition_counts,
                )
                self._dir.made(identity)
                self._dir.grant(identity, name, groups)
                self.queues.append(self._running_queue(queue, identity, groups))
        finally:
            await store.close()
        await _all(broker.start() for broker in self.brokers)
        await _all(coordinator.start() for coordinator in self.coordinators)
        await _all(map(_until_served, self.queues))

    async def _check_known(
        self, store: Store, queue: PartitionedQueue, identity: QueueIdentity
    ) -> None:
        """Refuse a Redis that does not hold a queue which it held at an earlier start.

        Raises:
            SettingsError: it does not; nothing was changed.
        """
        if not identity.is_made or await holds(store, queue, uid=identity.uid):
            return
        namespace, name = queue.key
        redis = f"in {self._dir.redis}" if self._has_own_redis else "whose URL is given"
        raise SettingsError(
            f"queue {namespace}/{name}: the data directory {self.data_dir} has run it before (uid "
            f"{identity.uid}), and the Redis {redis} does not hold it: its messages are "
            "elsewhere, or gone. Bring that Redis's data back; or, to begin with no messages, "
            f"remove {identity.tokens_file.parent} and start again"
        )

    def _running_queue(
        self, queue: PartitionedQueue, identity: QueueIdentity, groups: tuple[str, ...]
    ) -> RunningQueue:
        namespace, name = queue.key
        env = {
            **{key: value for key, value in os.environ.items() if not key.startswith("PARTQ_")},
            "PARTQ_NAMESPACE": namespace,
            "PARTQ_QUEUE": name,
            "PARTQ_QUEUE_UID": identity.uid,
            "PARTQ_REDIS_URL": self._redis_url,
            "PARTQ_LOG_LEVEL": self._log_level,
        }
        brokers = []
        for number in range(queue.spec.brokers.replicas):
            broker_id = f"{name}-broker-{number}"
            port = self._broker_ports.pop(0)
            broker_env = {
                **env,
                "PARTQ_BROKER_ID": broker_id,
                "PARTQ_LISTEN_HOST": HOST,
                "PARTQ_LISTEN_PORT": str(port),
                "PARTQ_TOKENS_FILE": str(identity.tokens_file),
                "PARTQ_LEASE_TTL_S": str(self._lease_ttl_s),
                **queue.spec.brokers.limits.environment(PREFIX),
            }
            log_file = self._dir.log(f"{namespace}.{broker_id}")
            brokers.append(BrokerChild(broker_id, port=port, log_file=log_file, env=broker_env))
        coordinator = Child(
            f"{name}-coordinator",
            _partq("coordinator"),
            probe=_runs,
            log_file=self._dir.log(f"{namespace}.{name}-coordinator"),
            env={
                **env,
                "PARTQ_TOKEN_FILE": str(identity.admin_token_file),
                "PARTQ_RETIRE_AFTER_S": str(self._retire_after_s),
            },
        )
        client_assigned = frozenset(
            group.metadata.name
            for group in self._resources.groups_of(queue)
            if group.spec.assignment == "Client"
        )
        with_sessions = frozenset(
            group.metadata.name
            for group in self._resources.groups_of(queue)
            if GroupType(group.spec.type) is GroupType.SESSION
        )
        return RunningQueue(
            *(namespace, name, identity.uid, identity.tokens),
            groups=groups,
            client_assigned=client_assigned,
            with_sessions=with_sessions,
            brokers=tuple(brokers),
            coordinator=coordinator,
            is_created=queue.key not in self._declared,
        )

    def _choose_ports(self) -> None:
        """Choose a port for each broker, before Redis takes one of them."""
        count = sum(queue.spec.brokers.replicas for queue in self._resources.queues)
        if not self._port:
            self._broker_ports = [self._free_port() for _ in range(count)]
            return
        self._broker_ports = list(range(self._port, self._port + count))
        for port in self._broker_ports:
            if not _is_free(port):
                raise SettingsError(
                    f"port {port} of {HOST} is in use; choose others with --port, or "
                    "any that are free with --port 0"
                )

    def _free_port(self) -> int:
        try:
            return self._ports.take(but=self._broker_ports)
        except OSError as error:
            raise SettingsError(str(error)) from error


async def _until_served(queue: RunningQueue) -> None:
    """Wait until every partition has a broker.

    Raises:
        UnavailableError: not so after `SERVED_TIMEOUT_S`.
    """
    url = f"{queue.brokers[0].url}/v1/queues/{quoted(queue.name, 'queue')}/layout"
    headers = {"Authorization": f"Bearer {queue.tokens.produce}"}
    timeout = aiohttp.ClientTimeout(PROBE_TIMEOUT_S)
    missing = ""
    try:
        async with (
            asyncio.timeout(SERVED_TIMEOUT_S),
            aiohttp.ClientSession(headers=headers, timeout=timeout) as http,
        ):
            while True:
                try:
                    async with http.get(url, raise_for_status=True) as response:
                        layout = decode(await response.read(), LayoutAnswer)
                    count = _partition_count(layout)
                    if len(layout.owners) >= count:
                        return
                    missing = f"{len(layout.owners)} of {count} partitions have a broker"
                except aiohttp.ClientResponseError as error:
                    if error.status == 401:
                        raise UnavailableError(
                            f"queue {queue.namespace}/{queue.name}: {queue.brokers[0].url} is "
                            "answered by another server, which does not know the queue's tokens: "
                            "the port was taken meanwhile; start again, or choose others with "
                            "--port"
                        ) from None
                    missing = str(error)
                except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                    missing = str(error)
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise UnavailableError(
            f"queue {queue.namespace}/{queue.name} is not served after {SERVED_TIMEOUT_S:g} s: "
            f"{missing}"
        ) from None


async def _runs() -> bool:
    """Say that a process which lives is ready: it has no port to ask."""
    return True


async def _all(works: Iterable[Awaitable[Any]]) -> None:
    """Run all to their end, then raise the first error."""
    for result in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def _partq(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "partq.cli.main", *arguments)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError):  # none of its number, or it is taken
            return False
        return True


def _partition_count(layout: LayoutAnswer) -> int:
    """Return how many partitions have to be served."""
    if layout.table is UNSET or layout.retired is UNSET:
        return sum(each.partitions for each in layout.generations)
    return len({*layout.table, *layout.retired})
