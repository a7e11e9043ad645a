"""A queue with everything around it, each part a process that a test may kill.

Two brokers own a partition each, and member a has both. Member b is bound, too, so a coordinator
that starts hands partition 1.1 over, from a to b: a handoff that a test can stop at any point.
"""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count

from aiohttp import ClientError, ClientSession, ClientTimeout

from partq import Producer
from partq.core.model import MemberId
from partq.embedded.provision import provision
from partq.errors import StoreUnavailableError
from partq.resources import group_document, queue_document, resources_of
from partq.settings import LEASE_TTL_S
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.records.assignments import Assignments
from partq.store.records.audit import Audits
from partq.store.records.handoffs import Handoffs
from partq.store.records.members import Members
from partq.store.records.partitions import Partitions
from partq.testing import eventually
from partq.testing.tcp_ports import free_port
from tests.faults.member import begun
from tests.faults.proxy import AdminProxy, Tunnel
from tests.faults.standstill import MARK, StandstillWatch
from tests.faults.traffic import MOVES, STAYS, WAIT_S, Traffic

GROUP = "workers"
LEASE_S = LEASE_TTL_S
"""Long enough for a machine that is busy, short enough to wait for its end."""
DELAY_S = 5
"""The rebalance delay: within it a flow is back that was lost as its process stood still."""
RENEWAL_S = 0.5
"""How often a test renews a pause, which holds for 3 s."""
CALL_TIMEOUT = ClientTimeout(WAIT_S)
LOOK_TIMEOUT = ClientTimeout(2.0)
"""Of a look at a broker: it may be frozen."""
DELIVERY_TIMEOUT_S = 20.0
PRODUCE, CONSUME, ADMIN = "produce-token-0001", "consume-token-0001", "admin-token-000001"

_numbers = count(1)


class Stage:
    """Everything of one test."""

    def __init__(self, forker, redis, directory):
        self.forker = forker
        self.redis = redis
        self.directory = directory
        self.processes = {}
        self.proxies = {}
        """In front of the brokers, for clients and coordinator."""
        self.redis_road = None
        """Between the second broker and Redis; None: it has none."""
        self._stack = AsyncExitStack()
        self._standstills = []
        self.traffic = None

    # ---- opening and closing --------------------------------------------------------------------

    async def open(
        self, *, members=("a", "b"), redis_road=False, die_at=None, is_audited=False
    ):  # fmt: skip
        """Start brokers and members; partitions are with a, and no coordinator runs yet.

        `redis_road`: what orders-1 says to Redis passes a tunnel. `die_at`: where orders-1 dies, or
        of no operation: where a broker kills Redis.
        `is_audited`: the brokers keep an audit record.
        """
        number = next(_numbers)
        watch = StandstillWatch(self._standstills.append).start()
        self._stack.callback(watch.close)
        self.uid = f"{number:08x}"
        (self.directory / "journals").mkdir()
        self._write_tokens()
        self.http = await self._stack.enter_async_context(ClientSession(timeout=CALL_TIMEOUT))
        url = self.redis.server.url
        self.store = await Store.open(url, prefix=f"faults{number}", timeout_s=60.0)
        self._stack.push_async_callback(self.store.close)
        keys = Keys(self.store.prefix, "default", "orders", self.uid)
        self.assignments = Assignments(self.store, keys)
        self.handoffs = Handoffs(self.store, keys)
        self.members = Members(self.store, keys)
        self.events_key = keys.events()
        self.audits, self.partitions = Audits(self.store, keys), Partitions(self.store, keys)
        queue = queue_document(
            "orders",
            partitions=2,
            audit=is_audited,
            brokers={"replicas": 2},
            rebalance={"delaySeconds": DELAY_S, "maxHandoffSeconds": 20},
        )
        resources = resources_of(queue, group_document(GROUP, "orders"))
        await provision(self.store, resources.queues[0], resources, uid=self.uid)
        for name in members:
            await self.members.list_member(GROUP, MemberId(name), "127.0.0.1")

        if redis_road:
            self.redis_road = await Tunnel(self.redis.server.port).start()
            self._stack.push_async_callback(self.redis_road.close)
        for name in ("orders-0", "orders-1"):
            self.proxies[name] = await AdminProxy(free_port()).start()
            self._stack.push_async_callback(self.proxies[name].close)
            is_meant = name == "orders-1" or (die_at is not None and not die_at.operation)
            self.start_broker(name, die_at=die_at if is_meant else None)
        for partition, name in ((STAYS, "orders-0"), (MOVES, "orders-1")):
            await self._own(name, partition)
        await eventually(self._are_served, "the brokers know each other's partitions")
        for name in members:
            self.start_member(name)
        for partition in (STAYS, MOVES):
            await self._assign(partition)
        await eventually(lambda: self._are_bound(members), "the members are bound")
        producer = await Producer(
            self.url, queue="orders", token=PRODUCE, delivery_timeout_s=DELIVERY_TIMEOUT_S
        ).__aenter__()
        self.traffic = Traffic(producer, self.directory)
        await self.traffic.once("first")
        await self.traffic.stored()
        await self.traffic.all_processed()
        return self

    async def close(self):
        if self.traffic is not None:
            await self.traffic.close()  # as long as there is somebody to answer
        for process in self.processes.values():
            await process.kill()
            process.close()
        await self._stack.aclose()

    def _write_tokens(self):
        roles = ((PRODUCE, "produce"), (CONSUME, "consume"), (ADMIN, "admin"))
        rows = [{"token": token, "queue": "orders", "role": role} for token, role in roles]
        (self.directory / "tokens.json").write_text(json.dumps(rows))
        (self.directory / "admin.token").write_text(ADMIN)

    @property
    def url(self):
        return ",".join(proxy.url for proxy in self.proxies.values())

    async def _own(self, name, partition):
        async def claimed():
            with suppress(ClientError, TimeoutError):
                (result,) = await self._post(name, "/claim", {"partitions": [str(partition)]})
                return "error" not in result

        await eventually(claimed, f"{name} owns {partition}")

    async def _are_served(self):
        owners = set()
        for proxy in self.proxies.values():
            url = f"http://127.0.0.1:{proxy.target_port}/v1/queues/orders/layout"
            async with self.http.get(url, headers={"Authorization": f"Bearer {PRODUCE}"}) as answer:
                layout = await answer.json()
            owners.add(len(layout.get("owners", ())))
        return owners == {2}

    async def _are_bound(self, members):
        for name in self.proxies:
            state = await self._admin("GET", name, "/state")
            if {flow["member"] for flow in state["flows"]} != set(members):
                return False
        states = [await self.state(partition) for partition in (STAYS, MOVES)]
        return all(state.get("is_bound") for state in states)

    async def _assign(self, partition):
        at = await self.state(partition)
        commit = {
            "partition": str(partition),
            **{name: at[name] for name in ("broker_epoch", "epoch")},
            "attempt": at["attempt"] + 1,
            "source": "",
            "target": "a",
            "cause": "unassigned",
        }
        (result,) = await self._post(at["broker"], f"/groups/{GROUP}/commit", {"commits": [commit]})
        assert "error" not in result, result

    # ---- processes ------------------------------------------------------------------------------

    def start_broker(self, name, *, die_at=None):
        """Start a broker, or start it again."""
        proxy = self.proxies[name]
        port = self.redis.server.port
        if self.redis_road is not None and name == "orders-1":
            port = self.redis_road.port
        self._start(
            "broker",
            name,
            {
                "PARTQ_BROKER_ID": name,
                "PARTQ_LISTEN_PORT": str(proxy.target_port),
                "PARTQ_ADVERTISED_URL": proxy.url,
                "PARTQ_TOKENS_FILE": str(self.directory / "tokens.json"),
                "PARTQ_LEASE_TTL_S": str(LEASE_S),
                "PARTQ_REDIS_URL": f"redis://127.0.0.1:{port}/0",
            },
            die_at=die_at,
        )

    def start_coordinator(self, name="coordinator", *, die_at=None):
        self._start(
            "coordinator",
            name,
            {
                "PARTQ_REDIS_URL": self.redis.server.url,
                "PARTQ_TOKEN_FILE": str(self.directory / "admin.token"),
                "PARTQ_RETIRE_AFTER_S": "0",
            },
            die_at=die_at,
        )

    def start_member(self, name):
        """Start a member, or a new life of it."""
        args = (self.url, CONSUME, name, self.directory / "journals", self.hold_file(name))
        self._start("consumer", name, {}, args)

    def start_producer(self, keys, confirmed, step):
        """Start a producer that dies at a step of its move; `confirmed`: where it says what is."""
        self._start(
            "producer", "producer", {}, (self.url, PRODUCE, ",".join(keys), confirmed, step)
        )

    def _start(self, kind, name, env, args=(), die_at=None):
        queue = {
            "PARTQ_QUEUE": "orders",
            "PARTQ_QUEUE_UID": self.uid,
            "PARTQ_KEY_PREFIX": self.store.prefix,
        }
        older = self.processes.pop(name, None)
        if older is not None:
            older.close()
        log = self.directory / f"{name}.log"
        self.processes[name] = self.forker.start(
            kind, name, log=log, env=queue | env if kind in ("broker", "coordinator") else env,
            args=args, die_at=die_at,
        )  # fmt: skip

    async def kill(self, name):
        await self.processes[name].kill()

    # ---- looking --------------------------------------------------------------------------------

    async def _admin(self, method, name, path, body=None, limit=CALL_TIMEOUT):
        """Call a broker itself, past its proxy."""
        url = f"http://127.0.0.1:{self.proxies[name].target_port}/admin/v1/queues/orders{path}"
        headers = {"Authorization": f"Bearer {ADMIN}"}
        async with self.http.request(
            method, url, json=body, headers=headers, timeout=limit
        ) as answer:
            return await answer.json()

    async def _post(self, name, path, body):
        answer = await self._admin("POST", name, path, body)
        return answer.get("results") or [answer]

    async def state(self, partition=MOVES):
        """Return what the owner of a partition says of it; nothing while nobody owns it."""
        found = {}
        for name in self.proxies:
            try:
                state = await self._admin("GET", name, "/state", limit=LOOK_TIMEOUT)
            except (ClientError, TimeoutError):
                continue
            owned = state.get("partitions", {}).get(str(partition), {})
            row = owned.get("groups", {}).get(GROUP)
            if row is not None and owned["broker_epoch"] > found.get("broker_epoch", 0):
                found = {"broker": name, "broker_epoch": owned["broker_epoch"], **row}
                found["end"] = owned["end"]
        return found

    async def is_ready(self, name):
        """Say whether a broker's lease is valid, by its own word."""
        url = f"http://127.0.0.1:{self.proxies[name].target_port}/readyz"
        async with self.http.get(url) as answer:
            return answer.status == 200

    async def until_state(self, *, partition=MOVES, **wanted):
        """Wait until the owner of a partition says so."""

        async def is_so():
            state = await self.state(partition)
            return state if wanted.items() <= state.items() else None

        return await eventually(is_so, f"partition {partition}: {wanted}")

    async def until_claimed(self, before, broker):
        """Wait until a broker has claimed the partition that moves; `before`: its state by then."""

        async def is_claimed():
            at = await self.state()
            return at if at.get("broker_epoch", 0) > before["broker_epoch"] else None

        at = await eventually(is_claimed, f"{broker} claims {MOVES}")
        assert at["broker"] == broker
        return at

    async def until_assigned(self, member, *, partition=MOVES):
        """Wait until the index in Redis names a member, too."""

        async def is_so():
            with suppress(StoreUnavailableError):  # a connection to a Redis that was killed
                assigned = (await self.assignments.read(GROUP)).get(partition)
                return assigned is not None and assigned.member == member

        await eventually(is_so, f"assignment of {partition}: {member}")

    async def take_hints_away(self):
        """Have every event lost: what is there is no stream any more."""
        await self.store.read("SET", self.events_key, "")

    @property
    def road(self):
        """The proxy in front of the broker that owns the partition which moves."""
        return self.proxies["orders-1"]

    def has_stood_still(self):
        """Say whether a process of this test did, so long that a pause may have lapsed."""
        logs = self.directory.glob("*.log")
        return bool(self._standstills) or any(MARK in log.read_text() for log in logs)

    def made(self, name):
        """Return what brokers were asked by calls of this name, for the partition that moves."""
        return [
            item
            for proxy in self.proxies.values()
            for call in proxy.made(name)
            for item in call.items
            if item["partition"] == str(MOVES)
        ]

    def see_one_attempt(self, name):
        """See that these calls were made under one attempt, unless a pause has rightly lapsed."""
        attempts = {item["attempt"] for item in self.made(name)}
        assert len(attempts) == 1 or self.has_stood_still(), attempts

    async def commits(self):
        """Return what the commits that went through were asked for, the oldest first."""
        done = {}
        for proxy in self.proxies.values():
            for call in await proxy.done("commit"):
                for item, result in zip(call.items, call.results, strict=False):
                    if item["partition"] == str(MOVES) and "error" not in result:
                        done.setdefault(result["epoch"], item)
        return [done[epoch] for epoch in sorted(done)]

    def lose(self, point):
        """Lose what is held at a point; nothing is held from now on."""
        point.drop()
        for proxy in self.proxies.values():
            proxy.points.clear()

    async def reached(self, gate):
        """Wait until a call comes to a gate."""

        async def is_reached():
            return gate.reached.is_set()

        await eventually(is_reached, "a call at the gate")

    @asynccontextmanager
    async def renewing(self, pause):
        """Keep a pause in force in the place of a coordinator that has died."""

        async def renew():
            while True:
                await self.road.replay(pause)
                await asyncio.sleep(RENEWAL_S)

        task = asyncio.create_task(renew())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until_made(self, name, attempt, *, anew=False):
        """Wait until a call under this attempt is made, or made `anew`, for what moves."""
        seen = len(self.made(name)) if anew else 0

        async def is_made():
            return attempt in [item["attempt"] for item in self.made(name)[seen:]]

        await eventually(is_made, f"{name} under attempt {attempt}")

    # ---- members --------------------------------------------------------------------------------

    def hold_file(self, name):
        return self.directory / f"{name}.hold"

    async def hold(self, name, partition=MOVES):
        """Have a member work on a message of the partition, until `let_go`."""
        number = next(_numbers)
        whole = self.directory / f"{name}.hold{number}"
        whole.write_text(f"{partition} {number}")
        whole.rename(self.hold_file(name))

        async def has_begun():
            return begun(self.hold_file(name), number).exists()

        await eventually(has_begun, f"{name} has a message of {partition} in hand")

    def let_go(self, name):
        self.hold_file(name).unlink()

    async def handed_over(self, point, *, to="b", attempt_is_new, causes=(), lost=()):
        """Wait until the handoff has ended well, and judge everything that was processed."""
        at = await self.until_state(member=to, state="Ready")
        is_new = at["attempt"] > point.attempt
        assert is_new is attempt_is_new or (is_new and self.has_stood_still())
        await self.until_assigned(to)
        await self.traffic.until_processed(to)
        return await self.traffic.verdict(causes=causes, lost=lost)
