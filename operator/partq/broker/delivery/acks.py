"""Handles messages of members: acks, nacks, releases, begun messages; and ack timeouts."""

import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from partq.aio import Signal
from partq.broker.delivery.ack_records import (
    accepted,
    ack_lanes,
    answer_instead,
    check_sent,
    counted,
    is_open,
    note_kept,
    record_the_rest,
)
from partq.broker.delivery.cursor_writer import CursorWriter
from partq.broker.delivery.decode_check import DecodeCheck
from partq.broker.delivery.flow import Flow
from partq.broker.delivery.frame_problems import (
    ack_problem,
    nack_problem,
    progress_problem,
    read_problem,
    session_problem,
)
from partq.broker.delivery.key_states import StateAnswer, StateHandler
from partq.broker.partition.consumed_partition import ConsumedPartition, FlowPort
from partq.broker.partition.flow_records import record_of
from partq.broker.partition.outbox import Answer
from partq.broker.partition.owned_partition import OwnedPartition
from partq.core.cursor.redelivery_rules import NackOrder, RedeliveryRules
from partq.core.cursor.unreadable import NOTHING, Unreadable, explains, in_hand, set_aside
from partq.core.cursor.windows import TakenBack
from partq.core.dead_letters import MAX_WAITING, LetterNote
from partq.core.layout import Layout
from partq.core.model import BrokerId, Cause, Epoch, PartitionId
from partq.core.ranges import Ranges
from partq.core.records import LeaseRecord
from partq.errors import (
    BadRequestError,
    FencedError,
    PartqError,
    UnavailableError,
    UnknownPartitionError,
)
from partq.metrics import BrokerMetrics
from partq.store.key_states import KeyStates
from partq.wire import frames

_log = logging.getLogger(__name__)

_Answered = frames.Ack | frames.Nack | frames.InProgress | frames.ReadState


class AckHandler:
    """Counts outcomes in the books, each under the token and delivery that it names."""

    def __init__(
        self,
        *,
        owned: Mapping[PartitionId, OwnedPartition],
        layout: Callable[[], Layout | None],
        cursor_writer: CursorWriter,
        clock: Callable[[], float],
        rules: Callable[[str], RedeliveryRules],
        check: DecodeCheck,
        park: Callable[[ConsumedPartition, list[tuple[int, int]]], None],
        make_letters: Callable[[ConsumedPartition, list[int], LetterNote, Answer], None],
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
        metrics: BrokerMetrics,
        drain_signal: Signal,
        key_states: KeyStates,
        leases: Callable[[], Mapping[BrokerId, LeaseRecord]],
    ) -> None:
        self._owned = owned
        self._layout = layout
        self._cursor_writer = cursor_writer
        self._clock = clock
        self._rules = rules
        self._check = check
        self._park = park
        self._make_letters = make_letters
        self._spawn = spawn
        self._metrics = metrics
        self._drain_signal = drain_signal
        self.states = StateHandler(
            key_states, cursor_writer=cursor_writer, rules=rules, leases=leases, spawn=spawn
        )

    def ack(self, flow: Flow, frame: frames.Ack, answer: Answer) -> None:
        """Count an ack; `answer(None)` follows once it is stored, or the error at once."""
        consumed = self._admitted(
            flow, frame, ack_problem(frame), answer, lambda: self.ack(flow, frame, answer)
        )
        if consumed is None:
            return
        if frame.state_key is not None:
            admitted = self.states.admit(
                consumed.root, frame, answer, lambda: self.ack(flow, frame, answer)
            )
            if admitted is None:
                return
            answer = admitted
        elif self.states.waits(consumed.root, lambda: self.ack(flow, frame, answer)):
            return
        new = accepted(consumed, frame)
        # An ack that counts for nothing more leaves no state: a later message may have left one.
        has_state = frame.state_key is not None and is_open(consumed, frame.ranges)
        try:
            check_sent(flow, consumed, frame.delivery, upto=frame.upto, ranges=frame.ranges)
            if consumed.lanes is None:
                acked = consumed.book.ack(frame.upto, frame.ranges, frame.delivery)
            else:
                acked, answer = ack_lanes(consumed.lanes, frame, answer)
        except PartqError as error:
            answer(error)
            return
        has_state = has_state and not is_open(consumed, frame.ranges)
        flow.end_in_flight(acked)
        if new := counted(consumed, frame, new):
            consumed.flush_records.acked(consumed, flow, new)
        if has_state:
            consumed.root.states.put(frame.state_key or "", frame.state)
        if acked:
            self._has_moved(flow)
        self._metrics.acked(flow.group, acked)
        self._cursor_writer.notice(consumed.root, answer)
        consumed.has_changed()

    def leave_state(
        self,
        share: ConsumedPartition,
        frame: frames.Ack,
        answer: Answer,
        has_more: Callable[[], bool],
    ) -> None:
        """Leave the state that an ack of no message has; `answer(None)` once it is stored.

        `has_more`: says whether the session has open messages, or may have unread ones.
        """
        again = partial(self.leave_state, share, frame, answer, has_more)
        if share.root.is_committing:
            share.root.held_acks.append(again)
        elif share.flow is None:
            answer(_fenced(frame))
        elif (admitted := self.states.admit(share.root, frame, answer, again)) is not None:
            self.states.leave(share.root, frame, admitted, has_more=has_more())

    def read_state(self, flow: Flow, frame: frames.ReadState, answer: StateAnswer) -> None:
        """Answer with the state of a key, or the error: as all acks before it have left it."""
        consumed = self._admitted(
            flow, frame, read_problem(frame), answer, lambda: self.read_state(flow, frame, answer)
        )
        if consumed is not None:
            again = partial(self.read_state, flow, frame, answer)
            self.states.read(consumed.root, frame.key, answer, again)

    def nack(
        self, flow: Flow, frame: frames.Nack, answer: Answer, found: Unreadable | None = None
    ) -> int | None:
        """Take messages back that could not be processed; they are redelivered after their delay.

        `answer(None)` follows once their counts are stored, or the error at once. Returns from
        where on everything is sent again; None: nothing but these messages, or not known yet.

        Where the client could not decode them, `found` is what the broker cannot decode either:
        that becomes dead letters, and the rest is redelivered at once. None: it has a look first.

        Where the application asks for dead letters, `answer(None)` follows once they are stored in
        the outbox, and nothing is redelivered; where that has no room, they are given back.
        """
        consumed = self._admitted(
            flow, frame, nack_problem(frame), answer, lambda: self.nack(flow, frame, answer, found)
        )
        if consumed is None:
            return None
        if frame.reason == frames.UNDECODABLE and found is None:
            self._spawn(self._nack_after_look(flow, frame, answer), "look at what does not decode")
            return None
        if frame.makes_dead_letters:
            refusal = self._dead_letter(flow, consumed, frame, answer)
            if refusal is None:
                return None
            # A client has done with what it has asked for: without room it is given back.
            answer = partial(answer_instead, answer, refusal)
        book = consumed.book
        if found and (
            not found.ranges or frame.delivery != book.number or not explains(found, frame.ranges)
        ):
            found = None
        rules = self._rules(flow.group)
        delay_s = 0.0 if found else frame.delay_ms / 1000
        try:
            check_sent(flow, consumed, frame.delivery, ranges=frame.ranges)
            taken = book.nack(
                [*frame.ranges, *in_hand(book, found)] if found else frame.ranges,
                frame.delivery,
                now=self._clock(),
                delay_s=rules.after_nack_s if delay_s < 0 else lambda _: delay_s,
                is_free=rules.order is NackOrder.FREE,
                begun=None if frame.begun < 0 else frame.begun,
                counts=found is None,
            )
        except PartqError as refusal:
            answer(refusal)
            return None
        if taken.messages:
            self._has_moved(flow)
        kept_before = consumed.kept
        reason = frame.reason if frame.reason == frames.UNDECODABLE else ""
        if not reason:
            consumed.outbox.note(taken.offsets, LetterNote(frame.reason, frame.description))
        self._take_back(flow, consumed, taken, Cause.NACK, reason, answer)
        if frame.keeps:
            note_kept(consumed, taken, kept_before)
        if found:
            self._park(consumed.root, set_aside(book, found))
        return taken.rewound_from

    def _dead_letter(
        self, flow: Flow, consumed: ConsumedPartition, frame: frames.Nack, answer: Answer
    ) -> UnavailableError | None:
        """Make dead letters of messages; return why there is no room for them."""
        free = consumed.outbox.free
        try:
            check_sent(flow, consumed, frame.delivery, ranges=frame.ranges)
            offsets = consumed.book.not_done(frame.ranges, frame.delivery, most=free + 1)
        except PartqError as refusal:
            answer(refusal)
            return None
        if len(offsets) > free:
            return UnavailableError(
                f"partition {consumed.partition}: {MAX_WAITING - free} dead letters of "
                f"{flow.group} wait to be stored, and there is room for {free}; the messages were "
                "given back and are redelivered: look why they are not stored (`partq status`)"
            )
        self._has_moved(flow)
        note = LetterNote(frame.reason, frame.description, is_asked_for=True)
        self._make_letters(consumed.root, offsets, note, answer)
        return None

    def _admitted(
        self,
        flow: Flow,
        frame: _Answered,
        problem: PartqError | None,
        answer: Answer,
        again: Callable[[], object],
    ) -> ConsumedPartition | None:
        """Return the partition that a frame is about.

        None: it was refused, or waits for the commit that is under way; then comes `again`.
        """
        consumed = self._token_of(flow, frame)
        if problem is None and consumed is not None:
            problem = session_problem(frame, consumed, self._rules(flow.group))
        if problem is not None:
            answer(problem)
        elif consumed is None:
            answer(self._no_token(frame))
        elif consumed.root.is_committing:
            consumed.root.held_acks.append(again)
        else:
            return consumed
        return None

    async def _nack_after_look(self, flow: Flow, frame: frames.Nack, answer: Answer) -> None:
        self.nack(flow, frame, answer, await self.find_unreadable(flow, frame))

    async def find_unreadable(self, flow: Flow, frame: frames.Nack) -> Unreadable:
        """Return what of the first nacked batch the broker cannot decode either.

        One look of a flow at a time: a client that decodes nothing waits for its own.
        """
        start = min((start for start, _ in frame.ranges), default=-1)
        async with flow.decode_lock:
            consumed = self._token_of(flow, frame)
            if consumed is None or not 0 <= start < self._sent_end(consumed):
                return NOTHING
            try:
                return await self._check.find(consumed.partition, start) or NOTHING
            except PartqError as error:
                _log.warning(
                    "partition %s: its batch could not be checked: %s", consumed.partition, error
                )
                return NOTHING

    def _sent_end(self, consumed: ConsumedPartition) -> int:
        """Return an offset above all that the flow was sent."""
        # The position of a share goes back when it gets slots.
        is_share = consumed.root is not consumed
        return consumed.book.sent_end if is_share else consumed.book.position

    def release(self, flow: Flow, frame: frames.Release) -> None:
        """Take back what a client has not begun.

        Raises:
            BadRequestError, NotDeliveredError, RewoundError: nothing was released.
        """
        if frame.start < 0:
            raise BadRequestError(f"release: got start {frame.start}, expected 0 or more")
        consumed = self._token_of(flow, frame)
        if consumed is None or consumed.is_committing:
            return  # the token has ended, or is about to: everything is taken back anyway
        if consumed.lanes is not None:
            raise BadRequestError(
                f"release: partition {consumed.partition} of {flow.group}, whose order is Key; "
                "expected Returned, once the broker asks for messages back"
            )
        check_sent(flow, consumed, frame.delivery, upto=frame.start)
        audit_writer, position = consumed.audit_writer, consumed.book.position
        released = consumed.book.release(frame.start, frame.delivery)
        consumed.kept = (0, 0)  # the client keeps nothing that it releases
        if audit_writer is not None and released:
            first = max(frame.start, consumed.book.cursor)
            audit_writer.note(record_of("release", consumed, flow, (first, position)))
        self._released(flow, consumed, released)

    def _released(
        self, flow: Flow, consumed: ConsumedPartition, released: int, *, is_answer: bool = False
    ) -> None:
        flow.end_in_flight(released)
        consumed.root.to_hurry.set()  # nothing may be in flight any more
        if flow.is_leaving and consumed.pause is None and not is_answer:
            # Nobody asked for it: the client is about to end its connection, and wants no more.
            flow.credit.messages = 0
        consumed.has_changed()
        self._drain_signal.pulse()

    def take_returned(self, flow: Flow, frame: frames.Returned) -> None:
        """Take back what a client has dropped that was asked for it.

        Raises:
            BadRequestError, NotDeliveredError: nothing was taken back.
        """
        consumed = self._token_of(flow, frame)
        if consumed is None or consumed.root.is_committing:
            return  # the token has ended, or is about to: everything is taken back anyway
        lanes = consumed.lanes
        if lanes is None:
            raise BadRequestError(
                f"returned: partition {consumed.partition}; got the answer to an AskBack, expected "
                "it in a group of order Key only: release instead"
            )
        if frame.notice < 0:
            raise BadRequestError(f"returned: got notice {frame.notice}, expected 0 or more")
        check_sent(flow, consumed, 0, ranges=frame.ranges)
        if (audit_writer := consumed.audit_writer) is not None:
            for part in Ranges(sorted(frame.ranges)).pairs():
                for held in lanes.delivered(*part):
                    audit_writer.note(record_of("release", consumed, flow, held))
        flow.asked_back.get(consumed, {}).pop(frame.notice, None)
        if not frame.notice:
            flow.credit.messages = 0  # the client is about to end its connection
        released = lanes.returned(frame.ranges, frame.notice)
        self._released(flow, consumed, released, is_answer=frame.notice > 0)

    def withhold(self, flow: Flow, frame: frames.Withhold) -> None:
        """Deliver nothing of a partition while its application pauses it, or deliver again."""
        consumed = self._token_of(flow, frame)
        if consumed is not None:
            consumed.is_withheld = frame.is_on
            if frame.is_on:
                flow.ask_all_back(consumed)
            flow.notice(consumed)

    def begin(self, flow: Flow, frame: frames.Begun) -> None:
        """Note what the application has begun: from now on the time for its acks runs."""
        consumed = self._token_of(flow, frame)
        if consumed is not None:
            consumed.book.begin(frame.ranges, frame.delivery, self._clock())

    def extend(self, flow: Flow, frame: frames.InProgress, answer: Answer) -> None:
        """Let the time for acks start again; `answer(None)`, or the error, follows at once."""
        consumed = self._admitted(
            flow, frame, progress_problem(frame), answer, lambda: self.extend(flow, frame, answer)
        )
        if consumed is None:
            return
        try:
            check_sent(flow, consumed, frame.delivery, ranges=frame.ranges)
            consumed.book.extend(frame.ranges, frame.delivery, self._clock())
        except PartqError as refusal:
            answer(refusal)
            return
        self._has_moved(flow)
        answer(None)

    def time_out(self) -> None:
        """Take back what applications have processed for too long, where it is time to look."""
        now = self._clock()
        for owned in self._owned.values():
            for consumed in owned.groups.values():
                rules = self._rules(consumed.group)
                if rules.ack_timeout_s and not consumed.is_committing:
                    for held in consumed.holders():
                        self._time_out(held, rules, now)
                if consumed.shares is not None and consumed.shares.force_due(now):
                    self._cursor_writer.notice(consumed)

    def _time_out(self, consumed: ConsumedPartition, rules: RedeliveryRules, now: float) -> None:
        flow = consumed.flow
        if flow is None or now < consumed.next_tick:
            return
        consumed.next_tick = now + rules.ack_tick_s
        taken = consumed.book.time_out(
            now - rules.ack_timeout_s,
            now=now,
            delay_s=rules.after_timeout_s,
            is_free=rules.order is NackOrder.FREE,
        )
        if taken.counted:
            self._take_back(flow, consumed, taken, Cause.ACK_TIMEOUT)

    def _take_back(
        self,
        flow: FlowPort,
        consumed: ConsumedPartition,
        taken: TakenBack,
        cause: Cause,
        reason: str = "",
        answer: Answer | None = None,
    ) -> None:
        flow.end_in_flight(taken.messages)
        if taken.asked:
            flow.ask_back(consumed, taken)
        if taken.rewound_from is not None:
            consumed.kept = (0, 0)
            record_the_rest(flow, consumed, taken, reason or cause.name.lower())
            flow.send_rewound(consumed, taken.rewound_from, cause)
        if taken.counted:
            if consumed.audit_writer is not None:
                consumed.flush_records.note(
                    "nack",
                    consumed,
                    flow,
                    Ranges((offset, offset + 1) for offset in sorted(taken.offsets)).pairs(),
                    cause=reason or cause.name.lower(),
                )
            consumed.root.counts += 1
            self._metrics.taken_back(flow.group, reason or cause.name.lower(), taken.counted)
        flow.watch(consumed)
        self._cursor_writer.notice(consumed.root, answer)
        consumed.has_changed()

    def _has_moved(self, flow: Flow) -> None:
        flow.acked_at = self._clock()
        flow.is_known_stuck = False

    def _token_of(
        self,
        flow: Flow,
        frame: _Answered | frames.Release | frames.Returned | frames.Begun | frames.Withhold,
    ) -> ConsumedPartition | None:
        owned = self._owned.get(PartitionId(frame.generation, frame.partition))
        consumed = owned.groups.get(flow.group) if owned is not None else None
        held = consumed.held_by(flow, Epoch(frame.epoch)) if consumed is not None else None
        if (
            held is None
            or held.broker_epoch != frame.broker_epoch
            or not held.bound_from <= frame.epoch <= held.epoch
        ):
            return None
        return held

    def check_partition(self, partition: PartitionId) -> None:
        """Refuse a partition that the queue never had, as far as its layout is known.

        Raises:
            UnknownPartitionError: it is one.
        """
        layout = self._layout()
        if layout is not None and partition not in layout and not layout.is_past(partition):
            raise layout.unknown(partition)

    def _no_token(self, frame: _Answered) -> PartqError:
        """Return why the token that an ack names is not one of the flow's."""
        try:
            self.check_partition(PartitionId(frame.generation, frame.partition))
        except UnknownPartitionError as error:
            return error
        return _fenced(frame)


def _fenced(frame: _Answered) -> FencedError:
    return FencedError(
        f"partition {frame.generation}.{frame.partition}: token ({frame.broker_epoch}, "
        f"{frame.epoch}) has ended; stop working on the partition, its messages go to its new owner"
    )
