"""Registry of bound flows: admission, binding and loss."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from partq.aio import TaskSet, cancel_and_wait
from partq.broker.delivery.cursor_writer import CursorWriter
from partq.broker.delivery.expected_returns import ExpectedReturns
from partq.broker.delivery.flow import Flow
from partq.broker.delivery.flow_liveness import (
    PING_MISSED_S,
    FlowLiveness,
    LostFlow,
    find_unreturned,
)
from partq.broker.delivery.frame_problems import (
    RANKED_TYPES,
    check_lanes,
    check_priority,
    check_sessions,
    check_turns,
)
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.broker.partition.flow_ports import BatchFinder, ExpiryCheck
from partq.broker.partition.owned_partition import OwnedPartition
from partq.broker.parts.part_executor import PartExecutor
from partq.core.cursor.redelivery_rules import NackOrder, RedeliveryRules
from partq.core.group.records import RefusedJoin
from partq.core.model import Cause, Epoch, MemberId, PartitionId
from partq.errors import (
    BadRequestError,
    BrokerClosingError,
    FencedError,
    MemberInUseError,
    MemberRefusedError,
    NotListedError,
    NotOwnerError,
    PartqError,
    StoreUnavailableError,
    SupersededError,
    UnknownGroupError,
)
from partq.excerpts import excerpt
from partq.path_names import check_path_name
from partq.store.records.events import Events
from partq.store.records.members import Members
from partq.store.records.partitions import Partitions
from partq.store.retries import BIND_RETRY_S
from partq.wire.frames import MAX_CREDIT, MAX_CREDIT_BYTES

BIND_SILENCE_S = 1.0
"""How long a flow waits for further partitions, once it has some."""
LISTING_WAIT_S = 1.0
LISTING_POLL_S = 0.05
_UNSAID = (
    "and no coordinator has said why: a new member is admitted a moment after its first call, so "
    "call again; if this stays, check whether a coordinator (on Kubernetes: the operator) runs"
)
MAX_NAME_CHARS = 253
MAX_FLOWS = 20_000
MAX_LOST_FLOWS = 1000

_log = logging.getLogger(__name__)


class FlowRegistry:
    """All flows of this broker, one per (group, member)."""

    def __init__(
        self,
        *,
        owned: dict[PartitionId, OwnedPartition],
        partitions: Partitions,
        members: Members,
        events: Events,
        cursor_writer: CursorWriter,
        batch_finder: BatchFinder,
        expiry_check: ExpiryCheck,
        clock: Callable[[], float],
        max_unacked: Callable[[], int],
        type_of: Callable[[str], str],
        rules_of: Callable[[str], RedeliveryRules],
        parts: PartExecutor,
        return_s_of: Callable[[str], float],
        on_partition_lost: Callable[[ConsumedPartition, PartqError], None],
    ) -> None:
        self._owned = owned
        self._partitions = partitions
        self._members = members
        self._events = events
        self._cursor_writer = cursor_writer
        self._batch_finder = batch_finder
        self._expiry_check = expiry_check
        self._clock = clock
        self._max_unacked = max_unacked
        self._type_of = type_of
        self.rules_of = rules_of
        self._shares_of, self._range_check = parts.shares_of, parts.range_check
        self._return_s_of, self._returns = return_s_of, ExpectedReturns(clock)
        self._on_partition_lost = on_partition_lost
        self._flows: dict[tuple[str, MemberId], Flow] = {}
        self._numbers, self._liveness = 0, FlowLiveness()
        self._lost: dict[tuple[str, MemberId], LostFlow] = {}
        self._tasks = TaskSet()
        self._is_closed = False

    # ---- looking --------------------------------------------------------------------------------

    def find(self, group: str, member: MemberId) -> Flow | None:
        """Return the member's flow."""
        return self._flows.get((group, member))

    @property
    def flows(self) -> Iterable[Flow]:
        """All bound flows."""
        return self._flows.values()

    def wake_all(self) -> None:
        """Have all flows look for something to send."""
        for flow in self._flows.values():
            flow.wake.set()

    @property
    def lost(self) -> Iterable[LostFlow]:
        """Flows that ended and did not come back, the newest last."""
        return self._lost.values()

    # ---- binding --------------------------------------------------------------------------------

    async def open(
        self,
        *,
        group: str,
        member: str,
        incarnation: str,
        address: str,
        kind: str,
        credit: int,
        credit_bytes: int = 0,
        priority: int = 0,
        wants_standing: bool = False,
        takes_lanes: bool = False,
        takes_turns: bool = False,
        takes_sessions: bool = False,
        ranges: Sequence[tuple[int, int]] = (),
    ) -> Flow:
        """Open the member's flow, without partitions: `bind_all` binds those.

        Raises:
            NotListedError, MemberRefusedError, MemberInUseError: no flow.
            BrokerClosingError, BadRequestError: no flow.
            ConflictError: another member has declared some of the slots `ranges`.
            UpgradeRequiredError: the client does not know the group's order, or its type.
        """
        for name, value in (("member", member), ("incarnation", incarnation)):
            if not 1 <= len(value) <= MAX_NAME_CHARS or not value.isprintable():
                raise BadRequestError(
                    f"bind: {name} {excerpt(value)!r}; expected 1 to {MAX_NAME_CHARS} printable "
                    "characters"
                )
        check_path_name(member, "bind: member")
        if not 1 <= credit <= MAX_CREDIT:
            raise BadRequestError(f"bind: credit {credit}; expected 1 to {MAX_CREDIT} messages")
        if not 0 <= credit_bytes <= MAX_CREDIT_BYTES:
            raise BadRequestError(
                f"bind: credit of {credit_bytes} bytes; expected 0 (no bound) to {MAX_CREDIT_BYTES}"
            )
        of_type, rules = self._type_of(group), self.rules_of(group)
        check_priority(priority, group, of_type)
        check_sessions(rules.lock_s, group, member, takes_sessions=takes_sessions)
        check_lanes(rules.order, group, member, takes_lanes=takes_lanes)
        check_turns(of_type, group, member, takes_turns=takes_turns, takes_sessions=takes_sessions)
        name = MemberId(member)
        self._range_check.check(group, name, ranges, self._flows.values())
        with self._returns.waits(group, name, incarnation):
            await self.admit(group, name, address)
        if self._is_closed:
            raise BrokerClosingError("the broker is shutting down; bind at another one")
        if len(self._flows) >= MAX_FLOWS:
            raise BrokerClosingError(f"{MAX_FLOWS} flows are bound here; bind later")
        self.check_process(group, name, incarnation, retry_after_s=PING_MISSED_S)
        # Another member may have bound since; from here on nothing is awaited.
        self._range_check.check(group, name, ranges, self._flows.values())
        older = self._flows.get((group, name))
        if older is not None:
            self.lose(older)
        self._returns.end(group, name)
        self._numbers += 1
        flow = Flow(
            number=self._numbers,
            group=group,
            member=name,
            incarnation=incarnation,
            address=address,
            kind=kind,
            credit=credit,
            credit_bytes=credit_bytes,
            priority=priority,
            wants_standing=wants_standing,
            takes_lanes=takes_lanes,
            takes_turns=takes_turns,
            ranges=tuple((start, stop) for start, stop in ranges),
            max_unacked=self._max_unacked,
            batch_finder=self._batch_finder,
            expiry_check=self._expiry_check,
            now=self._clock(),
        )
        self._flows[group, name] = flow
        self._lost.pop((group, name), None)
        self._tasks.start(self._events.add("bound", group=group, member=name))
        return flow

    def check_process(
        self, group: str, member: MemberId, incarnation: str, *, retry_after_s: float
    ) -> None:
        """Let no other process of a member speak or bind for the one that consumes.

        Raises:
            MemberInUseError: another one has a flow here that is alive; or, in a group whose
                members choose their partitions, had one until now and is about to come back.
        """
        older = self._flows.get((group, member))
        if older is None:
            expected = self._returns.other(group, member, incarnation)
            other, left_s = expected or (None, 0.0)
            has, retry_after_s = "is about to open its", min(retry_after_s, max(0.1, left_s))
        else:
            is_silent = self._clock() - older.last_seen >= PING_MISSED_S
            other, has = None if is_silent else older.incarnation, "holds a living"
        if other is not None and other != incarnation:
            raise MemberInUseError(
                f"member {member} of {group}: got incarnation {excerpt(incarnation)!r}, but "
                f"{excerpt(other)!r} {has} flow; end that process, or choose another member id",
                retry_after_s=retry_after_s,
            )

    async def bind_all(self, flow: Flow) -> None:
        """Bind the flow to every partition here whose record names its member.

        One on a node of a Redis Cluster that is silent is bound once the node answers, and holds
        up no other.

        Raises:
            PartqError: no partition could be bound, or not for want of an answer.
        """
        self._begin_standing(flow)
        binds = {
            self._tasks.start(self.bind_one(consumed, flow)): consumed
            for owned in self._owned.values()
            if (consumed := owned.groups.get(flow.group)) is not None
        }
        waiting, has_answer = set(binds), False
        try:
            while waiting:
                done, waiting = await asyncio.wait(
                    waiting,
                    timeout=BIND_SILENCE_S if has_answer else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not done:
                    break
                has_answer = has_answer or any(bind.exception() is None for bind in done)
            self._check_bound(flow, [bind.exception() for bind in binds.keys() - waiting])
        except BaseException:
            await cancel_and_wait(*waiting)
            raise
        for bind, consumed in binds.items():
            if bind in waiting or bind.exception() is not None:
                self._tasks.start(self._bind_until_answered(consumed, flow, bind))

    def _check_bound(self, flow: Flow, errors: Iterable[BaseException | None]) -> None:
        """Raise one of the errors of its binds, if the flow cannot go on without those."""
        for error in errors:
            if error is None:
                continue
            if not isinstance(error, StoreUnavailableError) or not list(flow.partitions):
                raise error

    async def bind_one(self, consumed: ConsumedPartition, flow: Flow) -> None:
        """Bind the flow to one partition, if that is its member's: raises the epoch."""
        async with consumed.lock:
            shares = self._shares_of(consumed)
            if not self._may_take(consumed, flow):
                return
            if shares is not None:
                # The record names the members of parts, and this broker alone changes it.
                shares.bind(flow)
                return
            self.unbind(consumed, Cause.FLOW_LOST)
            consumed.end_unregistering()
            if consumed.audit_writer is not None:
                # What happened under the older epoch is recorded before the newer one.
                await self._cursor_writer.settle(consumed)
                await consumed.settle_audit()
                if not self._may_take(consumed, flow):
                    return
            try:
                epoch = await self._store_bind(consumed, flow)
            except (FencedError, NotOwnerError, UnknownGroupError) as error:
                self._on_partition_lost(consumed, error)
                return
            consumed.epoch = epoch
            if self._may_take(consumed, flow):
                flow.attach(consumed)

    async def _store_bind(self, consumed: ConsumedPartition, flow: Flow) -> Epoch:
        while True:
            try:
                return await self._partitions.bind(
                    consumed.partition,
                    consumed.group,
                    member=flow.member,
                    incarnation=flow.incarnation,
                    **consumed.next_write(),
                )
            except SupersededError:
                continue  # a flush was faster: nothing was written

    def _may_take(self, consumed: ConsumedPartition, flow: Flow) -> bool:
        if consumed.shares is not None:
            is_wanted = consumed.shares.wants(flow)
        else:
            is_wanted = consumed.member == flow.member and consumed.flow is not flow
        return is_wanted and not consumed.is_dropped and not flow.is_closed

    def bind_later(self, owned: OwnedPartition) -> None:
        """Bind the flows that are here already to a partition that was just claimed."""
        for bound in self._flows.values():
            self._stand_by(owned, bound)
        for consumed in owned.groups.values():
            self.bind_soon(consumed)

    def bind_soon(self, consumed: ConsumedPartition) -> None:
        """Bind the flows of a partition's members to it that are here."""
        shares = self._shares_of(consumed) if consumed.keys is not consumed.lanes else None
        if shares is not None:
            flows = [each for each in self._flows.values() if each.group == consumed.group]
            flows = [each for each in flows if shares.wants(each)]
        else:
            parts = consumed.parts.members if consumed.parts is not None else ()
            found = (self.find(consumed.group, m) for m in (consumed.member, *parts) if m)
            flows = [each for each in found if each is not None]
        for flow in flows:
            self._tasks.start(self._bind_until_answered(consumed, flow))

    def follow_types(self) -> None:
        """Tell members that are bound what they have, where the type of their group ranks them now.

        That is a group whose type was changed, or was not known when they bound.
        """
        for flow in self._flows.values():
            self._begin_standing(flow)

    def follow_orders(self) -> None:
        """End the flows whose clients do not know the order that their group has now.

        As they connect again, they are told why.
        """
        for flow in list(self._flows.values()):
            if not flow.takes_lanes and self.rules_of(flow.group).order is NackOrder.KEY:
                _log.warning(
                    "flow of %s in %s is ended: its client does not know the order Key; update it",
                    *(flow.member, flow.group),
                )
                self.lose(flow)

    def _begin_standing(self, flow: Flow) -> None:
        if self._type_of(flow.group) in RANKED_TYPES and flow.begin_standing():
            for owned in self._owned.values():
                self._stand_by(owned, flow)

    def _stand_by(self, owned: OwnedPartition, flow: Flow) -> None:
        """Tell a flow that its member does not have a partition, unless it is about to be bound."""
        consumed = owned.groups.get(flow.group)
        if consumed is not None and consumed.member != flow.member:
            flow.stand_by(consumed)

    async def _bind_until_answered(
        self, consumed: ConsumedPartition, flow: Flow, bind: Awaitable[None] | None = None
    ) -> None:
        """Repeat a bind until its server answers or nobody wants it; `bind`: one under way."""
        while True:
            try:
                await (bind or self.bind_one(consumed, flow))
                return
            except StoreUnavailableError as error:
                if not self._may_take(consumed, flow):
                    return
                _log.warning(
                    "bind of %s to %s failed, it is repeated: %s",
                    *(consumed.partition, flow.member, error),
                )
            except PartqError as error:
                # The client binds again, and finds its partitions then.
                _log.warning("bind of %s to %s failed: %s", consumed.partition, flow.member, error)
                self.lose(flow, may_return=True)
                return
            await asyncio.sleep(BIND_RETRY_S)
            bind = None

    def unbind(self, consumed: ConsumedPartition, cause: Cause) -> None:
        """Take a partition from its flow, and have the redelivery counts stored."""
        root = consumed.root
        counts = root.counts
        consumed.unbind(cause)
        if root.must_flush_first or root.counts > counts:
            self._cursor_writer.notice(root)

    async def admit(self, group: str, member: MemberId, address: str) -> None:
        """Wait until a member is listed at `address`, for a moment.

        Raises:
            NotListedError, MemberRefusedError: it is not listed there.
        """
        deadline = self._clock() + LISTING_WAIT_S
        has_asked = False
        while True:
            read = await self._members.read(group)
            listed, refused = read.members.get(member), read.refused.get(member)
            if listed is not None and listed.address == address:
                return
            if not has_asked:
                await self._events.add("ask", group=group, member=member, address=address)
                has_asked = True
            if self._clock() >= deadline:
                if refused is None or refused.address != address:
                    refused = RefusedJoin(address, f"it is not listed at {address}, {_UNSAID}")
                kind = MemberRefusedError if refused.is_final else NotListedError
                text = f"member {member} may not join {group} yet: {refused.reason}"
                raise kind(text, retry_after_s=1.0)
            await asyncio.sleep(LISTING_POLL_S)

    # ---- losing ---------------------------------------------------------------------------------

    def lose(self, flow: Flow, *, may_return: bool = False) -> None:
        """End a flow: its partitions are unbound, what was in flight goes out again.

        `may_return`: its process has not been seen to end.
        """
        if flow.is_closed:
            return
        if may_return and not flow.is_leaving and (return_s := self._return_s_of(flow.group)):
            self._returns.expect(flow.group, flow.member, flow.incarnation, return_s)
        full = [each.root for each in flow.partitions if (s := each.root.shares) and s.is_full]
        for consumed in list(flow.partitions):
            self.unbind(consumed, Cause.FLOW_LOST)
        flow.close()
        for consumed in full:
            self.bind_soon(consumed)  # somebody may have waited for a place
        key = (flow.group, flow.member)
        if self._flows.get(key) is flow:
            del self._flows[key]
            self._lost[key] = LostFlow(
                flow.group,
                flow.member,
                flow.incarnation,
                self._clock(),
                flow.is_leaving,
                flow.priority,
                flow.ranges,
            )
            if len(self._lost) > MAX_LOST_FLOWS:
                del self._lost[next(iter(self._lost))]
        self._tasks.start(self._events.add("unbound", group=flow.group, member=flow.member))

    def look(self) -> None:
        """Lose the flows that have been silent for too long; report those that are stuck."""
        now = self._clock()
        for flow in self._liveness.find_silent(list(self.flows), now):
            _log.info("flow of %s in %s is lost: it was silent", flow.member, flow.group)
            self.lose(flow)
        for flow, consumed in find_unreturned(self.flows, now):
            self._tasks.start(self._force_return(flow, consumed))

    async def _force_return(self, flow: Flow, consumed: ConsumedPartition) -> None:
        """Take back all that a client has of a partition, and bind it again, under a new epoch."""
        async with consumed.root.lock:
            if consumed.flow is flow and flow.asked_back.get(consumed):
                self.unbind(consumed, Cause.FLOW_LOST)
        self.bind_soon(consumed.root)

    def leave(self, flow: Flow) -> None:
        """Note that the member's process is ending."""
        if not flow.is_leaving:
            flow.is_leaving = True
            self._tasks.start(self._events.add("leaving", group=flow.group, member=flow.member))
            for consumed in list(flow.partitions):
                consumed.leave()

    def lose_all(self) -> None:
        """End all flows."""
        for flow in list(self._flows.values()):
            self.lose(flow)

    async def close(self) -> None:
        """End all flows, and bind nobody any more."""
        self._is_closed = True
        self.lose_all()
        await self._tasks.close()
