"""The connections of one process to one Redis: a single server, or the nodes of a Redis Cluster."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Self
from urllib.parse import urlsplit

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from partq.aio import cancel_and_wait
from partq.core import redis_url
from partq.errors import SettingsError, StoreUnavailableError
from partq.store.cluster_slots import key_of, slot_of
from partq.store.fail_point import FailPoint
from partq.store.pipelined_connection import Reply, not_sent
from partq.store.redis_cluster import ClusterMap
from partq.store.server import Channel, StoreInfo, StoreServer, worst

_READ_BYTES = 1024 * 1024
_AT_ONCE = 500
"""Calls that are sent side by side."""
_SILENCE_S = 1.0
"""How long nothing more may come of what several nodes are asked, once one of them has answered."""

IsLost = Callable[[str], bool]
"""Whether what is remembered of a key can be trusted no more."""


class Store:
    """One per process. Open it with `Store.open`, close it with `close`."""

    def __init__(
        self, url: str, *, prefix: str, timeout_s: float, fail_point: FailPoint | None
    ) -> None:
        self.prefix = prefix
        self.on_restart: list[Callable[[IsLost], None]] = []
        """Called, before anything else is sent, when a server is not the one it was. Each callee
        drops its memory of keys that are lost."""
        self.run_epoch = 0
        """Grows whenever another server, or another run of one, serves some of the keys."""
        self._timeout_s = timeout_s
        self._fail_point = fail_point
        try:
            redis_url.check(url)
        except ValueError as error:
            raise SettingsError(
                "store: the URL of Redis: invalid (not shown, it may hold a password); expected "
                f"{error}"
            ) from None
        self._urls = redis_url.redis_urls(url)
        self._nodes: list[StoreServer] = []
        """The only one; of a cluster: none."""
        self._cluster: ClusterMap | None = None

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

        `url` leads to a single server, or to any node of a Redis Cluster, which finds the others;
        with several hosts, `redis://a:6379,b:6379`, to the first node that answers. `timeout_s`
        bounds each round trip. `fail_point` ends the process at a chosen call.

        Raises:
            StoreUnavailableError: it cannot be reached, or is still loading its data.
            SettingsError: the URL is not one of Redis, the server is too old, or it would evict
                messages.
        """
        store = cls(url, prefix=prefix, timeout_s=timeout_s, fail_point=fail_point)
        try:
            await store._find()
            (await store.info()).check_usable()
        except BaseException:
            await store.close()
            raise
        return store

    async def close(self) -> None:
        """Fail every call without an answer, and close all connections."""
        if self._cluster is not None:
            await self._cluster.close()
        for node in self._nodes:
            await node.close()

    def nodes(self) -> list[StoreServer]:
        """Return the servers that hold the keys: one, or the masters of a cluster."""
        return list(self._nodes) if self._cluster is None else self._cluster.nodes

    async def run(
        self,
        script: str,
        keys: Sequence[str],
        args: Sequence[str | bytes | int] = (),
        *,
        channel: Channel = Channel.CONTROL,
        needs_replica: bool = False,
    ) -> Reply:
        """Run `scripts/{script}.lua` and return Redis's answer: int, bytes, None or a list.

        Waits for at most the pipeline before it and its own: twice the time-out. `keys` share a
        tag. `needs_replica`: where Redis has replicas, the answer comes once one of them has what
        was written.

        Raises:
            StoreUnavailableError: no answer, or an error; `is_outcome_known` says whether
                nothing has happened for certain.
            QuotaExceededError: Redis is full; nothing was written.
        """
        node = self._node(keys[0])
        return await node.run(script, keys, args, channel, needs_replica=needs_replica)

    async def read(
        self, *command: str | bytes | int, channel: Channel = Channel.BULK, wait_s: float = 0.0
    ) -> Reply:
        """Send a plain command that writes nothing; errors as in `run`.

        A command that blocks says by `wait_s` how long, in seconds, and takes `Channel.EVENTS`. One
        without a key goes to some node of a cluster.
        """
        return await self._node(key_of(command)).read(command, channel, wait_s)

    async def read_all(self, *commands: Sequence[str | bytes | int]) -> list[Reply]:
        """Send plain commands that write nothing in one pipeline; errors as in `run`.

        All go to the server that has the key of the first.
        """
        node = self._node(key_of(commands[0]))
        return await asyncio.gather(*(node.read(each) for each in commands))

    async def read_each(
        self, commands: Iterable[Sequence[str | bytes | int]], *, only_reachable: bool = False
    ) -> list[Reply]:
        """Send plain commands that write nothing, each to the server of its key, side by side.

        `only_reachable`: None stands for the answer of a node of a cluster that is silent, as long
        as another one answers; it is not waited for. Errors as in `run`.
        """
        return await self._each(
            (partial(self.read, *command) for command in commands), only_reachable, waits=False
        )

    async def run_each(
        self,
        script: str,
        calls: Iterable[tuple[Sequence[str], Sequence[str | bytes | int]]],
        *,
        only_reachable: bool = False,
    ) -> list[Reply]:
        """Run a script for several keys and arguments, side by side; as `read_each`.

        A node that is silent is waited for, as it may carry the script out.
        """
        return await self._each(
            (partial(self.run, script, *call) for call in calls), only_reachable
        )

    async def _each(
        self,
        works: Iterable[Callable[[], Awaitable[Reply]]],
        only_reachable: bool,
        *,
        waits: bool = True,
    ) -> list[Reply]:
        """Return the answers of all; `waits`: also for those that only may be left out."""
        all_works = list(works)
        skips = only_reachable and self._cluster is not None
        answers: list[Reply] = []
        for start in range(0, len(all_works), _AT_ONCE):
            chunk = [work() for work in all_works[start : start + _AT_ONCE]]
            if skips and not waits:
                answers += await _answers_of_most(chunk)
            else:
                answers += await asyncio.gather(*chunk, return_exceptions=skips)
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        is_silent = [isinstance(error, StoreUnavailableError) for error in errors]
        if errors and (len(errors) == len(answers) or not all(is_silent)):
            raise errors[0]
        return [None if isinstance(answer, BaseException) else answer for answer in answers]

    def server_of(self, key: str) -> str | None:
        """Return the name of the server that has a key; None: of a cluster, nobody at present."""
        try:
            return self._node(key).name
        except StoreUnavailableError:
            return None

    async def read_clocks(self) -> dict[str, int]:
        """Return the time of each server that holds keys, in unix ms, by its name.

        Of a cluster, a node that is silent is left out, as long as another one answers. Errors as
        in `run`.
        """
        nodes = self.nodes() or [self._node(None)]
        asks = (partial(node.read, ["TIME"]) for node in nodes)
        answers = await self._each(asks, only_reachable=True, waits=False)
        return {
            node.name: int(answer[0]) * 1000 + int(answer[1]) // 1000
            for node, answer in zip(nodes, answers, strict=True)
            if answer is not None
        }

    async def info(self, *, only_reachable: bool = False) -> StoreInfo:
        """Ask the servers what they are; of several, the worst counts. Errors as in `run`.

        `only_reachable`: a node of a cluster that is silent is left out, as long as another one
        answers.
        """
        if self._cluster is not None:
            await self._cluster.refresh()
        nodes = self.nodes()
        if not nodes:
            raise not_sent("no node of the Redis Cluster serves a slot")
        infos = await self._each((node.info for node in nodes), only_reachable, waits=False)
        return worst([info for info in infos if info is not None])

    async def refresh_slots(self) -> None:
        """Make sure that slots which have moved to other nodes are reported; errors as `run`."""
        if self._cluster is not None:
            await self._cluster.refresh()

    def leave_connections(self) -> None:
        """Let the next call of each channel open a new connection; calls under way continue."""
        for node in self.nodes():
            node.leave()

    def _node(self, key: str | None) -> StoreServer:
        if self._cluster is None:
            return self._nodes[0]
        return self._cluster.node(0 if key is None else slot_of(key))

    async def _find(self) -> None:
        """Find out by the first host that answers whether it is a cluster, and find its nodes.

        Raises:
            StoreUnavailableError: no host answers.
            SettingsError: it is not a cluster, and the URL names several hosts.
        """
        node, info, url = await self._first_answer()
        self._nodes = [node]
        if not info.is_cluster:
            if len(self._urls) > 1:
                raise SettingsError(
                    f"store: the URL of Redis names {len(self._urls)} hosts, and {node.name} is "
                    "not a node of a Redis Cluster; name one host"
                )
            return
        self._cluster = ClusterMap(
            map(_address, self._urls),
            make_node=lambda address: self._make_node(_at(url, address)),
            by_name=url.startswith("rediss:"),
            timeout_s=self._timeout_s,
            on_moved=self._moved,
        )
        await self._cluster.refresh()
        await node.close()
        self._nodes = []

    async def _first_answer(self) -> tuple[StoreServer, StoreInfo, str]:
        """Return a node that answers, what it says of itself, and its URL."""
        errors = []
        for url in self._urls:
            node = self._make_node(url)
            try:
                return node, await node.info(), url
            except StoreUnavailableError as error:
                errors.append(error)
                await node.close()
            except BaseException:
                await node.close()
                raise
        raise errors[-1]

    def _make_node(self, url: str) -> StoreServer:
        return StoreServer(
            _address(url),
            make_connection=self._connections(url),
            timeout_s=self._timeout_s,
            fail_point=self._fail_point,
            on_replaced=self._replaced,
            on_doubt=self._doubt,
        )

    def _connections(self, url: str) -> Callable[[], AbstractConnection]:
        """Return what makes connections that are not open yet; the simulator has its own kind."""
        try:
            factory = ConnectionPool.from_url(
                url,
                protocol=2,
                client_name="partq",
                socket_connect_timeout=self._timeout_s,
                socket_timeout=None,  # a pipelined connection has one time-out for a whole pipeline
                socket_read_size=_READ_BYTES,
                retry=Retry(NoBackoff(), 0),  # a write must not be sent twice behind our back
            )
        except ValueError as error:
            # The URL itself may hold a password.
            raise SettingsError(f"store: the URL of Redis: {error}") from error
        return partial(factory.make_connection)

    def run_of(self, key: str) -> str:
        """Return which run of which server has a key; empty: it is not known."""
        if self._cluster is None:
            return self._nodes[0].run_name if self._nodes else ""
        try:
            return self._cluster.node(slot_of(key)).run_name
        except StoreUnavailableError:
            return ""

    def _doubt(self, node: StoreServer, slot: int | None) -> None:
        if self._cluster is not None:
            self._cluster.doubt(node, slot)

    def _replaced(self, node: StoreServer) -> None:
        """Another run of a server has less than the one before, maybe."""
        if self._cluster is None:
            self._lose(lambda _: True)
        else:
            self._moved(self._cluster.serves(node))

    def _moved(self, has_moved: Callable[[int], bool]) -> None:
        self._lose(lambda key: has_moved(slot_of(key)))

    def _lose(self, is_lost: IsLost) -> None:
        self.run_epoch += 1
        for notify in self.on_restart:
            notify(is_lost)


async def _answers_of_most(works: Iterable[Awaitable[Reply]]) -> list[Reply]:
    """Return each answer, or its error; a node that is silent after others answered is given up."""
    asks = [asyncio.ensure_future(work) for work in works]
    waiting, is_answered = set(asks), False
    try:
        while waiting:
            done, waiting = await asyncio.wait(
                waiting,
                timeout=_SILENCE_S if is_answered else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            is_answered = is_answered or any(ask.exception() is None for ask in done)
            if not done:
                break
    finally:
        await cancel_and_wait(*waiting)
    silent = not_sent(f"no answer within {_SILENCE_S:g} s after those of other nodes")
    return [silent if ask in waiting else ask.exception() or ask.result() for ask in asks]


def _address(url: str) -> str:
    """Return host and port, as the nodes of a cluster name each other."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _at(url: str, address: str) -> str:
    """Return the URL with another host and port."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}{at}{address}").geturl()
