"""What people and their settings do to a queue, and what applications do to their messages."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from partq.core.model import PartitionId
from partq.lab.simulate.machine.stored import NAME as REDIS
from partq.lab.simulate.oracle.facts import GroupPartitionFacts
from partq.lab.simulate.oracle.fault_windows import SILENCE_S, road

if TYPE_CHECKING:
    from partq.lab.simulate.cluster import SimCluster

SETTLED_S: Final = 4.0
"""How long a group that was deleted, or made, has to find its members again."""
RESET_S: Final = 1.0
"""How long a reset may hold a partition up."""


class Interventions:
    """Each method is one kind of event; it returns what it was done to, or None: nothing."""

    def __init__(self, world: "SimCluster", last_until: Callable[[float], None]) -> None:
        self._world = world
        self._last_until = last_until
        """Told until when nothing may be mended."""

    def _later(self, delay_s: float, work: Callable[[], None]) -> None:
        self._last_until(self._world.loop.time() + delay_s + 0.01)
        self._world.later(delay_s, work)

    # ---- the path to Redis ----------------------------------------------------------------------

    def late(self, args: dict[str, Any]) -> str | None:
        """Let one connection to Redis carry nothing, be given up, and deliver after that."""
        world = self._world
        names = [*world.broker_names, "coordinator"]
        name: str = names[args["who"] % len(names)]
        connections = world.redis.connections_of(name)
        if not connections:
            return None
        connection = connections[args["lane"] % len(connections)]
        world.troubles.hit(road(name, REDIS), args["for_s"], linger_s=SILENCE_S)
        connection.stand_still()
        self._later(args["for_s"], connection.reset)

        def deliver() -> None:
            world.records.effects["late"] += connection.deliver_late()

        self._later(args["for_s"] + args["late_s"], deliver)
        return name

    # ---- groups ---------------------------------------------------------------------------------

    def group_life(self, args: dict[str, Any]) -> str | None:
        """Delete a group, and make it again under the same name."""
        groups = self._world.administrator.groups
        names = list(groups)
        if not names:
            return None
        name: str = names[args["which"] % len(names)]
        spec = dict(groups.pop(name))
        if "uid" in spec:
            spec["uid"] = f"{self._world.loop.time():.6f}"
        elif args["is_one"]:
            self._world.administrator.wish()  # of groups without a uid each step is one of its own
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
        self._world.administrator.wish()
        for seat in self._world.records.seats.values():
            if seat.group == group:
                self._world.watcher.isolation.disturb(seat.name, SETTLED_S)

    def reset(self, args: dict[str, Any]) -> str | None:
        """Move a group's cursor in a partition, back or forward; or where a nack is made next."""
        world = self._world
        seats = [seat for seat in world.records.seats.values() if seat.is_there]
        if not seats:
            return None

        def begin(seat: GroupPartitionFacts) -> None:
            body = {"is_forced": args["is_forced"]}
            if args["to"] == "offset":
                body["offset"] = round(args["share"] * len(seat.log.ids))
            else:
                body["to"] = args["to"]
            world.process("administrator").start(self._reset(seat, body))

        def begin_at(group: str, message: int) -> None:
            for seat in seats:
                if seat.group == group and message in seat.log.ids:
                    begin(seat)

        if args.get("is_after_nack"):
            world.mishaps.after_nack.append(begin_at)
            return None
        seat: GroupPartitionFacts = seats[args["which"] % len(seats)]
        begin(seat)
        return seat.name

    async def _reset(self, seat: GroupPartitionFacts, body: dict[str, Any]) -> None:
        world = self._world
        world.watcher.isolation.disturb(seat.name, RESET_S)
        partition = PartitionId.parse(seat.log.name)
        route = f"/groups/{seat.group}/reset"
        try:
            answer = await world.network.call(seat.log.owner, route, (partition, body))
        except OSError:
            return
        if "error" in answer:
            world.watcher.note(f"reset of {seat.name} refused: {answer['error']['code']}")
            return
        world.watcher.note(f"reset of {seat.name} from {answer['cursor']} to {answer['to']}")
        world.watcher.was_reset(seat, answer["to"])

    # ---- limits ---------------------------------------------------------------------------------

    def expire(self, args: dict[str, Any]) -> None:
        """Give the messages of the queue a time to live, for a while."""
        administrator = self._world.administrator
        self._world.records.let_expire(args["ttl_s"])
        administrator.spec["messageTTLSeconds"] = args["ttl_s"]
        administrator.wish()

        def end() -> None:
            if administrator.spec.pop("messageTTLSeconds", None) is not None:
                administrator.wish()

        self._later(args["for_s"], end)

    def quota(self, args: dict[str, Any]) -> None:
        """Let the queue hold only so many bytes, for a while."""
        administrator = self._world.administrator
        administrator.spec["limits"]["maxSpoolBytes"] = args["bytes"]
        administrator.wish()

        def end() -> None:
            if administrator.spec["limits"].pop("maxSpoolBytes", None) is not None:
                administrator.wish()

        self._later(args["for_s"], end)

    def store_full(self, args: dict[str, Any]) -> None:
        """Let Redis be full: nearly, so that it says so, or up to its last byte."""
        redis = self._world.redis
        redis.used_share = 1.0 if args["is_hard"] else 0.9
        self._world.troubles.hit(REDIS, args["for_s"], linger_s=SILENCE_S)
        self._later(args["for_s"], lambda: setattr(redis, "used_share", 0.0))

    # ---- applications ---------------------------------------------------------------------------

    def nack(self, args: dict[str, Any]) -> None:
        """Have the next messages given back."""
        self._world.mishaps.nack_count += args["count"]

    def hang(self, args: dict[str, Any]) -> None:
        """Have the next messages stay in hand for long."""
        mishaps = self._world.mishaps
        mishaps.hang_count += args["count"]
        mishaps.hang_s = args["for_s"]

    def bad(self, args: dict[str, Any]) -> None:
        """Publish messages that nobody gets done."""
        self._world.post(args["count"], is_bad=True)
