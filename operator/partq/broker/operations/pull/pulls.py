"""Consuming by plain HTTP: a flow whose deliveries wait for the next pull."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from partq.broker.broker import Broker
from partq.broker.delivery.flow import Flow
from partq.broker.delivery.flow_liveness import PULL_LEASE_S
from partq.broker.operations.pull.pull_answer import PullReply, TakenWindow, left_of
from partq.broker.partition.audit_buffer import parts_of
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.core.model import Cause, Epoch, MemberId, PartitionId
from partq.errors import (
    BadRequestError,
    ConflictError,
    FencedError,
    PartqError,
    StoreUnavailableError,
)
from partq.excerpts import excerpt
from partq.server.memory import Hold, RequestMemory
from partq.wire import frames
from partq.wire.calls import answers
from partq.wire.calls.bodies import MAX_PULL_MESSAGES, MAX_PULL_WAIT_MS
from partq.wire.receipt import PulledReceipt

FIRST_ANSWER_BITS = 48
"""JSON carries whole numbers of 53 bits everywhere."""


class PullWait:
    """The wait of a pull, which somebody else may end: it is answered then with what there is."""

    def __init__(self) -> None:
        self.is_ended = False
        self.flow: Flow | None = None
        """Where it waits; None: it does not yet."""

    def end(self) -> None:
        """Let the pull wait no longer; a repeat does nothing."""
        self.is_ended = True
        if self.flow is not None:
            self.flow.wake.set()


@dataclass(slots=True)
class PullState:
    """The last answer of a pulling member."""

    answer_number: int = field(default_factory=lambda: random.getrandbits(FIRST_ANSWER_BITS))
    """The first one is drawn: a member that names an answer of a flow that has ended, here or in an
    earlier life of the broker, must not name one of this flow by chance."""
    messages: list[answers.PulledMessage] | None = None
    has_messages: bool = False
    """Whether that has messages."""
    unanswered: list[frames.Begun] = field(default_factory=list)
    """What of it no call was answered with yet: the time for its acks does not run."""
    is_over: bool = False
    """Whether the member leaves, and was told that it holds nothing more."""
    hold: Hold | None = None
    """What the last answer holds of the memory of all requests, until the next one."""
    newest: PullWait | None = None
    """Of the pulls that a broker makes for the member: the caller has given the older ones up."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Pulls of one member are answered one after another."""

    def keep(
        self, messages: list[answers.PulledMessage], hold: Hold, *, has_messages: bool
    ) -> None:
        """Keep an answer until the next pull names it, in case that it is lost."""
        self.messages, self.hold, self.has_messages = messages, hold, has_messages

    def is_wanted(self, unacked: int) -> bool:
        """Say whether a pull that does not name the answer gets it again.

        Not when nothing of it could be lost: it has no messages, or none is in flight (`unacked`).
        """
        return self.messages is not None and self.has_messages and unacked > 0

    def release(self) -> None:
        """Forget the last answer."""
        self.messages = None
        if self.hold is not None:
            self.hold.release()


class Pulls:
    """The pulling members of this broker."""

    def __init__(self, broker: Broker, memory: RequestMemory | None = None) -> None:
        self._broker = broker
        self._memory = memory or RequestMemory(broker.settings.request_memory_bytes)
        self._states: dict[Flow, PullState] = {}

    async def pull(
        self,
        *,
        group: str,
        member: str,
        incarnation: str,
        address: str,
        max_messages: int,
        wait_ms: int,
        last_answer: int | None,
        priority: int = 0,
        ranges: Sequence[tuple[int, int]] = (),
        wait: PullWait | None = None,
    ) -> answers.PullAnswer:
        """Return the next messages; or the last answer again, not named and with some in flight.

        `wait`: of a pull that a broker makes for the member; it ends the wait of the one before.

        Raises:
            BadRequestError, NotListedError, MemberInUseError: nothing was delivered.
            ConflictError: as of `refuse_left`, unless a broker pulls for the member.
            OverloadedError: other requests hold too much memory; nothing was delivered.
        """
        check_bounds(max_messages, wait_ms)
        if wait is None:
            self.refuse_left(group, member, incarnation, address)
        is_direct = wait is None
        flow, state = await self._flow(group, member, incarnation, address, priority, ranges)
        flow.last_seen = self._broker.clock()
        if wait is None:
            wait = PullWait()
        else:
            if state.newest is not None:
                state.newest.end()
            wait.flow, state.newest = flow, wait
        async with state.lock:
            if last_answer == state.answer_number or not state.is_wanted(flow.credit.unacked):
                state.release()
                reply = PullReply(Hold(self._memory))
                flow.credit.messages, flow.count_fitting = max_messages, reply.encode_fitting
                try:
                    await self._take(flow, reply, wait_ms, wait)
                    await self._recorded(flow, reply.taken)
                except BaseException:
                    reply.hold.release()
                    raise
                finally:
                    flow.count_fitting = None
                state.answer_number += 1
                state.unanswered = [_begun(each) for each in reply.taken]
                self._count(flow, reply)
                state.keep(reply.messages(), reply.hold, has_messages=bool(reply.taken))
            # A broker whose lease is over must not answer: somebody else may own the partitions.
            await self._broker.lease.renewed(self._broker.settings.lease_ttl_s * 2)
            flow.last_seen = self._broker.clock()
            if flow.is_closed or state.messages is None:
                state.release()
                raise FencedError(f"member {member}: the flow was lost meanwhile; pull again")
            for begun in state.unanswered:
                self._broker.ack_handler.begin(flow, begun)
            state.unanswered = []
            # The messages are under tokens that may have ended; whose partitions these are now
            # is told fresh each time.
            answer = self._render(flow, state.answer_number, state.messages)
            if is_direct:
                self.note_left(group, member, answer)
            return answer

    def refuse_left(self, group: str, member: str, incarnation: str, address: str) -> None:
        """Refuse a member that has left and was told so: it would never get a message.

        Raises:
            ConflictError: it is one.
            ForbiddenError: it is bound from another address than the call comes from.
        """
        flow = self._broker.flow_registry.find(group, MemberId(member))
        state = self._states.get(flow) if flow is not None else None
        if flow is None or state is None or flow.incarnation != incarnation or not state.is_over:
            return
        flow.check_address(address)
        if flow.partitions:
            state.is_over = False  # what it is to hand over it has first to get
            return
        flow.last_seen = self._broker.clock()
        raise ConflictError(
            f"pull: member {excerpt(member)} has left group {group}, and holds nothing more: stop "
            f"pulling; to join again, pull after {PULL_LEASE_S:g} s without a pull"
        )

    def note_left(self, group: str, member: str, answer: answers.PullAnswer) -> None:
        """Note whether a member that leaves is told by an answer that it holds nothing more."""
        flow = self._broker.flow_registry.find(group, MemberId(member))
        state = self._states.get(flow) if flow is not None else None
        if flow is not None and state is not None and flow.is_leaving:
            state.is_over = not (answer.held or answer.failed)

    def find(self, group: str, member: str, number: int, address: str) -> Flow:
        """Return the member's flow, if it is the one named.

        Raises:
            ForbiddenError: it is bound from another address than the call comes from.
            FencedError: it was lost, or another one took its place.
        """
        flow = self._broker.flow_registry.find(group, MemberId(member))
        if flow is not None:
            flow.check_address(address)
        if flow is None or flow.number != number or flow.is_closed:
            raise FencedError(
                f"flow {excerpt(number)} of {excerpt(member)} has ended: its messages are "
                "redelivered; pull again"
            )
        flow.last_seen = self._broker.clock()
        return flow

    def find_flow_of_receipt(self, group: str, receipt: PulledReceipt, address: str) -> Flow:
        """Return the flow that a message was delivered to, while it has the partition.

        Raises:
            ForbiddenError: it is bound from another address than the call comes from.
            FencedError: its token has ended.
            UnknownPartitionError: the queue never had the partition.
        """
        partition = receipt.partition
        owned = self._broker.owned.get(partition)
        consumed = owned.groups.get(group) if owned is not None else None
        held = [] if consumed is None else consumed.holders()
        flow = next(
            (
                each.flow
                for each in held
                if isinstance(each.flow, Flow)
                and (each.broker_epoch, each.flow.number) == (receipt.broker_epoch, receipt.flow)
                and each.bound_from <= receipt.epoch <= each.epoch
            ),
            None,
        )
        if not isinstance(flow, Flow):
            self._broker.ack_handler.check_partition(partition)
            raise FencedError(
                f"partition {partition}: the receipt's token ({receipt.broker_epoch}, "
                f"{receipt.epoch}) has ended; drop the message: it is redelivered, or done with"
            )
        flow.check_address(address)
        flow.last_seen = self._broker.clock()
        return flow

    async def open_flow(self, group: str, member: str, incarnation: str, address: str) -> Flow:
        """Return the flow of a member that pulls, which is bound if it is not.

        Raises:
            PartqError: it has none.
        """
        flow, _ = await self._flow(group, member, incarnation, address, 0, ())
        flow.last_seen = self._broker.clock()
        return flow

    async def _flow(
        self,
        group: str,
        member: str,
        incarnation: str,
        address: str,
        priority: int,
        ranges: Sequence[tuple[int, int]],
    ) -> tuple[Flow, PullState]:
        flow = self._broker.flow_registry.find(group, MemberId(member))
        if flow is not None and flow.incarnation == incarnation:
            flow.check_address(address)
        if flow is None or flow.incarnation != incarnation or flow.kind != "pull":
            flow = await self._broker.flow_registry.open(
                group=group,
                member=member,
                incarnation=incarnation,
                address=address,
                kind="pull",
                takes_lanes=True,
                takes_turns=True,
                takes_sessions=True,
                credit=MAX_PULL_MESSAGES,
                priority=priority,
                ranges=ranges,
            )
            flow.credit.messages = 0
            self._states = {f: s for f, s in self._states.items() if not f.is_closed}
            state = self._states[flow] = PullState()
            flow.on_closed = state.release
            try:
                await self._broker.flow_registry.bind_all(flow)
            except PartqError:
                self._broker.flow_registry.lose(
                    flow
                )  # the next pull binds again, to every partition
                raise
            return flow, state
        return flow, self._states[flow]

    async def _take(self, flow: Flow, reply: PullReply, wait_ms: int, wait: PullWait) -> None:
        """Take windows until there are some, or a partition is paused, or the wait is over.

        Raises:
            OverloadedError: the first message finds too little memory.
        """
        clock = self._broker.clock
        until = clock() + wait_ms / 1000
        while not flow.is_closed and self._broker.lease.is_valid:
            flow.wake.clear()
            flow.drop_controls()
            flow.credit.out_bytes = 0  # an answer has a separate bound
            found = flow.next_delivery(clock())
            if isinstance(found, tuple):
                consumed, entry, window = found
                reply.add(flow.number, flow.deliver_header(consumed, entry, window), window)
                if reply.is_full or flow.credit.messages <= 0:
                    break
                continue
            if reply.lacks_bytes and not reply.taken:
                raise reply.hold.refusal(reply.lacks_bytes)
            is_paused = any(each.pause is not None for each in flow.partitions)
            left = until - clock()
            if reply.taken or is_paused or left <= 0 or wait.is_ended:
                break
            await flow.wake.wait_at_most(left if found is None else min(left, found - clock()))
        flow.credit.messages = 0
        reply.forget_encoded()

    async def _recorded(self, flow: Flow, taken: list[TakenWindow]) -> None:
        """Record the windows before they are answered.

        Raises:
            FencedError: the flow was lost meanwhile.
            StoreUnavailableError: Redis does not answer; what was taken is redelivered.
        """
        pulled = flow.unrecorded.pulled
        held: list[tuple[TakenWindow, ConsumedPartition]] = []
        for each in taken:
            owned = self._broker.owned.get(_partition_of(each))
            consumed = owned.groups.get(flow.group) if owned is not None else None
            if consumed is not None:
                consumed = consumed.held_by(flow, Epoch(each.header.epoch))
            if consumed is None:
                continue
            held.append((each, consumed))
            pulled.setdefault(consumed, []).append((each.header.delivery, each.window))
            if (audit_writer := consumed.audit_writer) is not None:
                audit_writer.note(flow.record_of(consumed, each.header, each.window))
        try:
            async with asyncio.timeout(self._broker.settings.lease_ttl_s * 2):
                for consumed in dict.fromkeys(consumed for _, consumed in held):
                    await consumed.settle_audit()
        except BaseException as error:
            # Nobody gets them: they must not count as delivered.
            self._broker.flow_registry.lose(flow)
            if isinstance(error, TimeoutError):
                raise StoreUnavailableError(
                    "pull: the deliveries are not recorded: Redis does not answer; pull again",
                    retry_after_s=1.0,
                ) from None
            raise
        # What is lost, or about to be, goes to the partition's next member. What was taken back
        # meanwhile is redelivered.
        kept = {
            consumed
            for _, consumed in held
            if consumed in pulled and not consumed.root.is_committing
        }
        for consumed in kept:
            del pulled[consumed]
        taken[:] = [
            left
            for each, consumed in held
            if consumed in kept and (left := left_of(each, consumed)) is not None
        ]

    def _count(self, flow: Flow, reply: PullReply) -> None:
        for each in reply.taken:
            cause = Cause(each.window.cause).name.lower()
            self._broker.metrics.delivered(flow.group, cause, each.window.messages)
            if each.window.cause == Cause.NONE:
                waits = self._broker.delivery_waits
                waits.add(flow.group, _partition_of(each), each.header.at_ms)

    def _render(
        self, flow: Flow, answer_number: int, messages: list[answers.PulledMessage]
    ) -> answers.PullAnswer:
        living = self._broker.claims.observer.living(self._broker.clock())
        leases = self._broker.claims.observer.leases
        return answers.PullAnswer(
            answer=answer_number,
            flow=flow.number,
            lease_ms=round(PULL_LEASE_S * 1000),
            messages=messages,
            held=sorted(str(each.partition) for each in flow.partitions),
            paused=sorted(
                str(each.partition) for each in flow.partitions if each.pause is not None
            ),
            others=sorted(leases[b].url for b in living if b != self._broker.id),
        )


def check_bounds(max_messages: int, wait_ms: int) -> None:
    """Refuse a pull for too few or too many messages, or that waits for too long.

    Raises:
        BadRequestError: it is one.
    """
    if not 1 <= max_messages <= MAX_PULL_MESSAGES or not 0 <= wait_ms <= MAX_PULL_WAIT_MS:
        raise BadRequestError(
            f"pull: max_messages {excerpt(max_messages)}, wait_ms {excerpt(wait_ms)}; "
            "expected 1 to "
            f"{MAX_PULL_MESSAGES} and 0 to {MAX_PULL_WAIT_MS}"
        )


def _partition_of(taken: TakenWindow) -> PartitionId:
    return PartitionId(taken.header.generation, taken.header.partition)


def _begun(taken: TakenWindow) -> frames.Begun:
    header, window = taken.header, taken.window
    return frames.Begun(
        header.generation,
        header.partition,
        header.broker_epoch,
        header.epoch,
        header.delivery,
        ranges=list(parts_of(window)) if window.mask else [(window.start, window.stop)],
    )
