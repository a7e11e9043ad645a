"""What people and their settings do to a queue, and what applications do to their messages."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from partq.core.model import PartitionId
from partq.lab.simulate.machine.loop import Process
from partq.lab.simulate.machine.stored import NAME as REDIS
from partq.lab.simulate.oracle.facts import GroupPartitionFacts
from partq.lab.simulate.oracle.fault_windows import SILENCE_S, road
from partq.lab.simulate.schedule import EventArgs
from partq.path_names import quoted

if TYPE_CHECKING:
    from partq.lab.simulate.cluster import SimCluster

SETTLED_S: Final = 4.0
"""How long a group that was deleted, or made, has to find its members again."""
RESET_S: Final = 1.0
"""How long a reset may hold a partition up."""


class Interventions:
    """Each method is one kind of event; it returns what it was done to, or None: nothing."""

    def __init__(self, cluster: "SimCluster", last_until: Callable[[float], None]) -> None:
        self._cluster = cluster
        self._last_until = last_until
        """Told until when nothing may be mended."""

    def _later(self, delay_s: float, work: Callable[[], None]) -> None:
        self._last_until(self._cluster.loop.time() + delay_s + 0.01)
        self._cluster.later(delay_s, work)

    # ---- the path to Redis ----------------------------------------------------------------------

    def late(self, args: EventArgs) -> str | None:
        """Let one connection to Redis carry nothing, be given up, and deliver after that."""
        cluster = self._cluster
        names = [*cluster.broker_names, "coordinator"]
        name: str = names[args["who"] % len(names)]
        connections = cluster.redis.connections_of(name)
        if not connections:
            return None
        connection = connections[args["lane"] % len(connections)]
        cluster.troubles.hit(road(name, REDIS), args["for_s"], linger_s=SILENCE_S)
        connection.stand_still()
        self._later(args["for_s"], connection.reset)

        def deliver() -> None:
            cluster.records.effects["late"] += connection.deliver_late()

        self._later(args["for_s"] + args["late_s"], deliver)
        return name

    # ---- groups ---------------------------------------------------------------------------------

    def group_life(self, args: EventArgs) -> str | None:
        """Delete a group, and make it again under the same name."""
        groups = self._cluster.administrator.groups
        names = list(groups)
        if not names:
            return None
        name: str = names[args["which"] % len(names)]
        spec = dict(groups.pop(name))
        if "uid" in spec:
            spec["uid"] = f"{self._cluster.loop.time():.6f}"
        elif args["is_one"]:
            self._cluster.administrator.wish()  # without uids each step is a separate wish
        if args["is_one"]:  # who looks now and then sees one change, and another uid
            groups[name] = spec
        self._changed(name)

        def make() -> None:
            if name not in groups:
                groups[name] = spec
                self._changed(name)

        self._later(args["for_s"], make)
        return name

    def _changed(self, group: str) -> None:
        self._cluster.administrator.wish()
        for facts in self._cluster.records.group_partitions.values():
            if facts.group == group:
                self._cluster.watcher.isolation.disturb(facts.name, SETTLED_S)

    def reset(self, args: EventArgs) -> str | None:
        """Move a group's cursor in a partition, back or forward, now or when something happens.

        That is the next nack, or the next move of a message into an outbox, whose answer is lost.
        """
        cluster = self._cluster
        group_partitions = [
            facts for facts in cluster.records.group_partitions.values() if facts.is_there
        ]
        if not group_partitions:
            return None

        def begin(facts: GroupPartitionFacts) -> None:
            body = {"is_forced": args["is_forced"]}
            if args["to"] == "offset":
                body["offset"] = round(args["share"] * len(facts.log.ids))
            else:
                body["to"] = args["to"]
            cluster.process("administrator").start(self._reset(facts, body))

        def begin_at(group: str, message: int) -> None:
            for facts in group_partitions:
                if facts.group == group and message in facts.log.ids:
                    begin(facts)

        if args.get("is_after_nack"):
            cluster.mishaps.after_nack.append(begin_at)
            return None
        if args.get("is_after_move"):

            def lose(process: Process, keys: Sequence[bytes]) -> None:
                cluster.troubles.hit(road(process.name, REDIS), 0.01, linger_s=SILENCE_S)
                begin(next(facts for facts in group_partitions if facts.key == keys[1]))

            cluster.redis.to_lose["add_dead_letters"] = lose
            return None
        facts: GroupPartitionFacts = group_partitions[args["which"] % len(group_partitions)]
        begin(facts)
        return facts.name

    async def _reset(self, facts: GroupPartitionFacts, body: Mapping[str, object]) -> None:
        cluster = self._cluster
        cluster.watcher.isolation.disturb(facts.name, RESET_S)
        partition = PartitionId.parse(facts.log.name)
        route = f"/groups/{quoted(facts.group, 'group')}/reset"
        try:
            answer = await cluster.network.call(facts.log.owner, route, (partition, body))
        except OSError:
            return
        if "error" in answer:
            cluster.watcher.note(f"reset of {facts.name} refused: {answer['error']['code']}")
            return
        cluster.watcher.note(f"reset of {facts.name} from {answer['cursor']} to {answer['to']}")
        cluster.watcher.was_reset(facts, answer["to"])

    # ---- limits ---------------------------------------------------------------------------------

    def expire(self, args: EventArgs) -> None:
        """Give the messages of the queue a time to live, for a while."""
        administrator = self._cluster.administrator
        self._cluster.records.let_expire(args["ttl_s"])
        administrator.spec["messageTTLSeconds"] = args["ttl_s"]
        administrator.wish()

        def end() -> None:
            if administrator.spec.pop("messageTTLSeconds", None) is not None:
                administrator.wish()

        self._later(args["for_s"], end)

    def quota(self, args: EventArgs) -> None:
        """Let the queue hold only so many bytes, for a while."""
        administrator = self._cluster.administrator
        administrator.limits_spec["maxSpoolBytes"] = args["bytes"]
        administrator.wish()

        def end() -> None:
            if administrator.limits_spec.pop("maxSpoolBytes", None) is not None:
                administrator.wish()

        self._later(args["for_s"], end)

    def store_full(self, args: EventArgs) -> None:
        """Let Redis be full: nearly, so that it says so, or up to its last byte."""
        redis = self._cluster.redis
        redis.used_share = 1.0 if args["is_hard"] else 0.9
        self._cluster.troubles.hit(REDIS, args["for_s"], linger_s=SILENCE_S)
        self._later(args["for_s"], lambda: setattr(redis, "used_share", 0.0))

    # ---- applications ---------------------------------------------------------------------------

    def nack(self, args: EventArgs) -> None:
        """Have the next messages given back."""
        self._cluster.mishaps.nack_count += args["count"]

    def hang(self, args: EventArgs) -> None:
        """Let the application take long for the next messages."""
        mishaps = self._cluster.mishaps
        mishaps.hang_count += args["count"]
        mishaps.hang_s = args["for_s"]

    def bad(self, args: EventArgs) -> None:
        """Publish messages that nobody gets done."""
        self._cluster.post(args["count"], is_bad=True)
