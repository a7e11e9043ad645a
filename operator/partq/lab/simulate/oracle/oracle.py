"""The oracle: sees everything that leaves a process, and reports violations at once.

It judges what can be seen from outside: scripts of the store, frames of brokers, answers to the
coordinator, and what applications are handed.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from partq.broker.broker import Broker
from partq.core.model import Cause, PartitionId
from partq.lab.simulate.machine.loop import SimLoop
from partq.lab.simulate.machine.network import End, Plain
from partq.lab.simulate.oracle import answers
from partq.lab.simulate.oracle.facts import (
    GROUP,
    TAKEN_BACK,
    GroupPartitionFacts,
    Token,
    Violation,
    facts_name,
)
from partq.lab.simulate.oracle.fault_windows import FaultWindows
from partq.lab.simulate.oracle.forged_acks import (
    FIRST_REQUEST,
    MANY,
    forged,
    forged_again,
    undelivered_stop,
)
from partq.lab.simulate.oracle.handoffs import HandoffCalls
from partq.lab.simulate.oracle.isolation import RESPONSE_S, Isolation
from partq.lab.simulate.oracle.key_states import KeyStatesJudge
from partq.lab.simulate.oracle.keys.keyed_deliveries import KeyedDeliveries, causes_of, offsets_of
from partq.lab.simulate.oracle.keys.shared_deliveries import SharedDeliveries
from partq.lab.simulate.oracle.log_contents import LogContents
from partq.lab.simulate.oracle.movement import Movement
from partq.lab.simulate.oracle.records import Records
from partq.wire import frames

MAX_TRACE: Final = 2000


class ReceivedMessage(Protocol):
    """What is judged of a message that an application has got."""

    @property
    def partition(self) -> PartitionId: ...  # noqa: D102  named by what they are
    @property
    def token(self) -> Any: ...  # noqa: D102
    @property
    def offset(self) -> int: ...  # noqa: D102
    @property
    def value(self) -> bytes | str: ...  # noqa: D102
    @property
    def cause(self) -> Cause: ...  # noqa: D102


@dataclass(slots=True)
class _FlowTokens:
    """What was sent on one connection, per token."""

    group: str
    broker: Broker
    position: dict[tuple[str, Token], tuple[int, int]] = field(default_factory=dict)
    """(delivery number, next offset) of each token."""
    open: dict[tuple[str, Token], set[int]] = field(default_factory=dict)
    """What was sent of each token, and not given back."""
    batches: set[tuple[str, Token, int]] = field(default_factory=set)
    """What came with its bytes, by the first offset."""
    acks: dict[int, tuple[str, Token, list[int]]] = field(default_factory=dict)
    """What each ack that came is about."""


class Oracle:
    """Collects what happens; `violation` is the first thing that must not have."""

    records: Records
    handoffs: HandoffCalls

    def __init__(self, loop: SimLoop, hostile: random.Random) -> None:
        self.violation: Violation | None = None
        self.is_free = False
        """What is given back is redelivered alone, out of its turn."""
        self.isolates_keys = False
        """What is given back holds up its own key alone."""
        self.is_over = False
        """Nothing is judged any more: all processes are being ended."""
        self.hostile_count = 0
        """How many acks that must not count are still to be sent."""
        self.trace: list[tuple[float, str]] = []
        self.confirmed: dict[int, float] = {}
        """When each message was confirmed to its producer."""
        self.handed_count = 0
        self.duplicate_count = 0
        self._loop = loop
        self._rng = hostile
        self._tokens: dict[tuple[str, Token], End] = {}
        self._top: dict[str, Token] = {}
        self._seen: dict[tuple[str, object, str], tuple[Token, int]] = {}
        self._handed: set[tuple[str, int]] = set()
        self._handed_first: Counter[tuple[str, int]] = Counter()
        """How often each message was handed out without a cause, as for the first time."""
        self._finished: dict[tuple[str, Token], set[int]] = {}
        """The offsets that applications have finished under each token."""
        self._flows: dict[End, _FlowTokens] = {}
        self.troubles = FaultWindows(loop.time)
        self.keyed = KeyedDeliveries(self.fail, loop.time)
        self.contents = LogContents(self.fail)
        self.answers = answers.Answers(self.fail, self.keyed)
        self.states = KeyStatesJudge(self.fail)
        self.isolation = Isolation(self.troubles, self.fail, loop.time)
        self.shared = SharedDeliveries(self.contents, self.isolation, self.fail, loop.time)

    def follow(self, records: Records, movement: Movement) -> None:
        """Judge by these records; `movement` is notified of each handover."""
        self.records = self.keyed.records = self.shared.records = self.contents.records = records
        self.states.records = records
        self.handoffs = HandoffCalls(
            records,
            movement,
            self.isolation,
            fail=self.fail,
            note=self.note,
            now=self._loop.time,
        )
        records.on_birth = self._born
        records.on_late_letter = lambda facts: self.isolation.go_on(facts.name)
        records.rescales.on_layout = movement.layout_changed
        records.rescales.on_gate = lambda facts: self.isolation.go_on(facts.name)
        records.is_in_flight = self._is_in_flight
        records.on_begin = self.shared.began_again
        records.round_of = self.shared.round_of

    def fail(self, invariant: str, text: str) -> None:
        """Take note of a violation; the first one counts."""
        if self.violation is None and not self.is_over:
            self.violation = Violation(invariant, text, self._loop.time())
            self._loop.is_stopped = True

    def note(self, text: str) -> None:
        """Add a line to the trace that a failing seed prints."""
        if len(self.trace) < MAX_TRACE:
            self.trace.append((self._loop.time(), text))

    # ---- frames of brokers ----------------------------------------------------------------------

    def sending(self, broker: Broker, group: str, end: End) -> Callable[[bytes], None]:
        """Return the listener for every frame that a broker sends to a consumer."""
        flow = self._flows[end] = _FlowTokens(group, broker)
        name = broker.id

        def sent(data: bytes) -> None:
            try:
                judge(*frames.decode(data))
            except Exception as error:
                self.fail("error", repr(error))  # else it would end a task of the broker, no more
                raise

        def judge(frame: frames.AnyFrame, payload: bytes) -> None:
            if self.shared.is_on and group == GROUP:
                self.shared.judge(end, partial(self._facts, flow), flow.batches, frame, payload)
                return
            match frame:
                case frames.Deliver():
                    self._delivered(name, end, flow, frame, payload)
                case frames.Assigned():
                    self._assigned(name, end, flow, frame)
                case frames.Paused():
                    name_of = self._facts(flow, frame).name
                    self.isolation.paused(name_of, end.pipe.target, _token(frame))
                case frames.Resumed():
                    self.isolation.resumed(self._facts(flow, frame).name, end.pipe.target)
                case frames.AskBack():
                    self.keyed.asked_back(self._facts(flow, frame).name, frame)
                case frames.Rewound(start=start):
                    if self.keyed.is_on:
                        self.fail("K3", f"{self._facts(flow, frame).name}: steps back to {start}")
                    self._give_back(flow, frame, start)
                    flow.position[self._facts(flow, frame).name, _token(frame)] = (
                        frame.delivery,
                        start,
                    )
                case frames.Revoked():
                    to = (end.pipe.target, name)
                    self.isolation.revoked(self._facts(flow, frame), to, _token(frame))
                case frames.AckConfirmed(request):
                    self.keyed.confirmed(end, request)
                    self._confirmed(name, flow, request)
                case _:
                    pass

        return sent

    def got(self, end: End, frame: frames.Ack) -> None:
        """Take an ack that has reached a broker."""
        flow, token = self._flows[end], _token(frame)
        name = self._facts(flow, frame).name
        # Of what is below `upto`, an ack speaks of what the application has done.
        offsets = [o for o in self._finished.get((name, token), ()) if o < frame.upto]
        offsets += [offset for start, stop in frame.ranges for offset in range(start, stop)]
        if self._is_shared(flow):
            self.shared.acked(self._facts(flow, frame), end, frame, offsets)
            return
        flow.acks[frame.request] = (name, token, offsets)
        self.handoffs.acked(flow.broker, name, token, offsets)
        self.keyed.acked(name, token, offsets)

    def gave_back(self, end: End, frame: frames.Release | frames.Returned | frames.Nack) -> None:
        """Take a frame by which a member gives messages back."""
        flow = self._flows[end]
        facts = self._facts(flow, frame)
        if self._is_shared(flow):
            self.shared.gave_back(facts, end, frame)
            return
        if isinstance(frame, frames.Returned):
            offsets = self.keyed.returned(facts.name, frame)
            flow.open.get((facts.name, _token(frame)), set()).difference_update(offsets)
            return
        if self.keyed.is_on and isinstance(frame, frames.Nack):
            offsets = self.keyed.nacked(facts, end, frame)
            flow.open.get((facts.name, _token(frame)), set()).difference_update(offsets)
            return
        start = frame.start if isinstance(frame, frames.Release) else min(frame.ranges)[0]
        self._give_back(flow, frame, start)

    def _is_shared(self, flow: _FlowTokens) -> bool:
        return self.shared.is_on and flow.group == GROUP

    def _give_back(self, flow: _FlowTokens, frame: Any, start: int) -> None:
        sent = flow.open.get((self._facts(flow, frame).name, _token(frame)))
        if sent is not None:
            sent.difference_update([offset for offset in sent if offset >= start])

    def _is_in_flight(self, facts: GroupPartitionFacts, offset: int) -> bool:
        """Say whether a member has got the message at an offset, and still holds its partition."""
        if self.shared.is_on and facts.group == GROUP:
            return self.shared.is_in_flight(facts, offset)
        end = self._tokens.get((facts.name, (facts.log.broker_epoch, facts.top_epoch)))
        if end is None:
            return False
        flow = self._flows[end]
        owned = flow.broker.owned.get(PartitionId.parse(facts.log.name))
        found = owned.groups.get(facts.group) if owned is not None else None
        is_bound = found is not None and found.flow is not None and found.epoch == facts.top_epoch
        key = (facts.name, (facts.log.broker_epoch, facts.top_epoch))
        is_in_flight = is_bound and offset in flow.open.get(key, ())
        return is_in_flight and not (self.keyed.is_on and self.keyed.may_be_timed_out(*key, offset))

    def hostile(self, end: End, frame: frames.Ack) -> frames.Ack | None:
        """Return an ack that must not count, to go behind a good one; None: not now."""
        if not self.hostile_count:
            return None
        flow = self._flows[end]
        facts = self._facts(flow, frame)
        if self._is_shared(flow):
            fake = self.shared.forge(facts, end, frame, self.hostile_count, self._rng)
            self.hostile_count -= fake is not None
            return fake
        self.hostile_count -= 1
        back = self.keyed.given_back(facts, _token(frame)) if self.keyed.is_on else ()
        if back and self._rng.random() < 0.5:
            return forged_again(frame, self.hostile_count, self._rng.choice(back))
        _, position = flow.position.get((facts.name, _token(frame)), (0, MANY))
        beyond = undelivered_stop(
            position, len(facts.log.ids), partial(self.records.needs_no_more, facts)
        )
        return forged(frame, self.hostile_count, beyond, self._rng)

    def _facts(self, flow: _FlowTokens, frame: Any) -> GroupPartitionFacts:
        return self.records.group_partitions[
            facts_name(f"{frame.generation}.{frame.partition}", flow.group)
        ]

    def _assigned(self, broker: str, end: End, flow: _FlowTokens, frame: frames.Assigned) -> None:
        facts, token = self._facts(flow, frame), _token(frame)
        name = facts.name
        known = self._tokens.setdefault((name, token), end)
        if known is not end:
            self.fail("S1", f"{name}: token {token} was given to two flows")
        flow.position[name, token] = (0, frame.cursor)
        self.keyed.assigned(name, token, frame.cursor)
        self.isolation.assigned(facts, (end.pipe.target, broker), token)
        self.handoffs.assigned(name)
        self.note(f"{end.process.name} assigns {name} to {end.pipe.target} under {token}")

    def _delivered(
        self, broker: str, end: End, flow: _FlowTokens, frame: frames.Deliver, payload: bytes
    ) -> None:
        facts, token = self._facts(flow, frame), (frame.broker_epoch, frame.epoch)
        name, log = facts.name, facts.log
        if self._tokens.get((name, token)) is not end:
            self.fail("S1", f"{name}: {broker} delivers under {token} to a flow without it")
            return
        top = self._top.get(name, (0, 0))
        if token < top and not self.records.was_rolled_back:
            self.fail("S1", f"{name}: {broker} delivers under {token} after {top}")
        self._top[name] = max(top, token)
        if log.is_torn:
            return  # this broker does not know yet that the store has forgotten
        number, position = flow.position[name, token]
        named = offsets_of(frame)
        skipped = {*range(frame.start, frame.stop)}.difference(named)
        skipped |= {o for start, stop in frame.skip for o in range(start, stop)}
        is_again = Cause(frame.cause) in TAKEN_BACK and frame.stop <= position
        frame_stop = frame.stop
        if self.keyed.is_on:
            frame_stop = max(position, frame.stop)
        elif frame.delivery == number and is_again and self.is_free:
            frame_stop = position  # out of its turn: the others continue where they were
        elif frame.delivery < number:
            self.fail("S3", f"{name}: continues under {frame.delivery} after {number}")
        elif frame.delivery == number and frame.start < position:
            self.fail("S3", f"{name}: delivers {frame.start} again without a cause")
        else:
            skipped.update(range(position, frame.start))
        flow.position[name, token] = (frame.delivery, frame_stop)
        is_old = token[1] <= facts.old_epoch
        sent = facts.sent
        for offset in skipped if not self.keyed.is_on else ():
            # In free order what was given back waits alone; it is skipped until its time comes.
            is_waiting = self.is_free and sent[offset]
            if not (is_old or is_waiting or self.records.needs_no_more(facts, offset)):
                self.fail("S3", f"{name}: offset {offset} is skipped, and nobody has done it")
        offsets = [o for o in range(frame.start, frame.stop) if o not in skipped]
        self.contents.judge(flow.batches, facts, frame, payload, offsets, facts.epoch)
        if not is_old:
            if self.keyed.is_on:
                self.keyed.sent(facts, token, offsets, causes_of(frame, len(offsets)))
            sent.update(offsets)
            self.records.rescales.sent(facts, offsets)
            flow.open.setdefault((name, token), set()).update(offsets)

    def _confirmed(self, broker: str, flow: _FlowTokens, request: int) -> None:
        if request >= FIRST_REQUEST:
            self.fail("G2", f"{broker} has confirmed an ack that must not count: {request}")
            return
        if (acked := flow.acks.pop(request, None)) is not None:  # else it was a nack
            self.confirmed_ack(broker, *acked)

    def confirmed_ack(self, broker: str, name: str, token: Token, offsets: Sequence[int]) -> None:
        """Take the news that a broker has confirmed an ack."""
        facts = self.records.group_partitions[name]
        if token[0] != facts.log.broker_epoch or facts.log.is_torn or self.records.was_rolled_back:
            return
        if token[1] <= facts.old_epoch:
            return  # it was stored, and then the group began again
        if not all(facts.is_stored_done(offset) for offset in offsets):
            self.fail("S2", f"{name}: {broker} has confirmed an ack that is not stored")

    # ---- answers to members that pull -----------------------------------------------------------

    def pulled(self, group: str, flow: answers.Flow, answer: Plain) -> None:
        """Take an answer to a pull, as it leaves a broker."""
        self.answers.judge(self.records, group, flow, answer)

    # ---- what applications are handed -----------------------------------------------------------

    def handed(
        self,
        group: str,
        member: str,
        life: object,
        delivery: ReceivedMessage,
        *,
        is_pulled: bool = False,
    ) -> None:
        """Take a message that an application begins to work on.

        `is_pulled`: nothing tells it that the broker which answered has gone silent since.
        """
        name = facts_name(delivery.partition, group)
        token = _token(delivery.token)
        facts, message = self.records.group_partitions[name], int(delivery.value)
        self.handed_count += 1
        place = self.shared.liveness.place_of(facts, delivery.offset, is_keyed=self.keyed.is_on)
        if self.shared.is_on and group == GROUP:
            idle_s = self.isolation.idle_s(life)
            self.shared.handed(facts, member, token, delivery.offset, idle_s)
        elif self.keyed.is_on:
            self.keyed.handed(facts, token, delivery.offset)
            is_idle = self.isolates_keys and not self.records.was_rolled_back
            if is_idle and self.isolation.idle_s(life) > RESPONSE_S:
                self._judge_unhanded(facts, member, life, token)
        last = self._seen.get((member, life, place))
        if last is not None and token < last[0]:
            self.fail("G2", f"{name}: {member} is handed {token} after {last[0]}")
        elif (
            last is not None
            and token == last[0]
            and delivery.offset <= last[1]
            and delivery.cause not in self.shared.liveness.causes_again
        ):
            self.fail("G1", f"{name}: {member} is handed {delivery.offset} after {last[1]}")
        self._seen[member, life, place] = (token, delivery.offset)
        is_silent = token[0] < facts.log.taken_over and not is_pulled
        if is_silent and not self.records.was_rolled_back:
            self.fail("S1", f"{name}: {member} is handed {token}, {facts.log.taken_over} has begun")
        self.duplicate_count += (group, message) in self._handed
        self._handed.add((group, message))
        if delivery.cause is not Cause.NONE or self.shared.is_of_earlier_life(facts, token):
            return
        if not self.records.was_rolled_back:
            stored_at = facts.log.stored_at[delivery.offset]
            self.isolation.handed(name, place, member, life, token, stored_at)
        # Which of two comes first does not matter: the older one may have been long on its way.
        times = self._handed_first[group, message] = self._handed_first[group, message] + 1
        if times > max(1, self.records.append_counts.get(message, 0)):
            self.fail("G4", f"{name}: {member} is handed {delivery.offset} again, no cause")

    def _judge_unhanded(
        self, facts: GroupPartitionFacts, member: str, life: object, token: Token
    ) -> None:
        """Judge what an application was not handed, though it had nothing to do: K5."""
        log = facts.log
        for offset in range(facts.cursor, len(log.ids) if not log.is_torn else 0):
            was_handed = (facts.group, log.ids[offset]) in self._handed
            is_held = self.records.held_keys.may_be_held(facts, offset)
            if not was_handed and not is_held and not self.records.needs_no_more(facts, offset):
                place = facts.place_of(offset)
                stored_at = log.stored_at[offset]
                self.isolation.handed(facts.name, place, member, life, token, stored_at)

    def waits(self, life: object) -> None:
        """Learn that an application waits for its next message."""
        self.isolation.waits(life)

    def taken_back(self, group: str, delivery: ReceivedMessage) -> None:
        """Learn that an application gives a message back, or has had it for too long."""
        name = facts_name(delivery.partition, group)
        self.records.effects["taken back"] += 1
        facts = self.records.group_partitions[name]
        place = self.shared.liveness.place_of(facts, delivery.offset, is_keyed=self.isolates_keys)
        self.isolation.hold_up(place, self.keyed.nack_s)

    def release(self, group: str, slot: int) -> None:
        """Learn that a key which has waited until somebody releases it is about to be released."""
        self.records.held_keys.released(group, slot)
        self.records.effects["key released"] += 1
        for facts in self.records.group_partitions.values():
            if facts.group == group:
                self.keyed.release(facts, slot)
                self.shared.release(facts, slot)
                self.isolation.hold_up(f"{facts.name}@{slot}" if self.isolates_keys else facts.name)

    def was_reset(self, facts: GroupPartitionFacts, to: int) -> None:
        """Learn that a broker has answered a reset."""
        if to not in facts.reset_to and not self.records.was_rolled_back:
            self.fail("S2", f"{facts.name}: a reset to {to} is answered, and not stored")

    def finished(self, group: str, delivery: ReceivedMessage) -> None:
        """Take a message that an application has finished."""
        facts = self.records.group_partitions[facts_name(delivery.partition, group)]
        token = _token(delivery.token)
        self._finished.setdefault((facts.name, token), set()).add(delivery.offset)
        if not self.shared.is_of_earlier_life(facts, token):
            facts.done.add(int(delivery.value))

    def read_state(self, group: str, delivery: ReceivedMessage, state: bytes | None) -> None:
        """Take the state that an application has read at a message."""
        facts = self.records.group_partitions[facts_name(delivery.partition, group)]
        found = None if state is None else int(state)
        self.states.read(facts, delivery.offset, _token(delivery.token), found)

    def leaves(self, group: str, delivery: ReceivedMessage, *, has_state: bool) -> None:
        """Learn that an application is about to acknowledge a message, with a state or without."""
        facts = self.records.group_partitions[facts_name(delivery.partition, group)]
        self.states.left(facts, delivery.offset, _token(delivery.token), has_state=has_state)

    def _born(self, facts: GroupPartitionFacts) -> None:
        """Learn that a group begins, maybe again: it is handed everything as for the first time."""
        self.note(f"{facts.name} begins at {facts.cursor}")
        self.isolation.begin(facts)
        self.shared.was_born(facts)
        for message in facts.log.ids[facts.cursor :]:
            self._handed_first.pop((facts.group, message), None)

    # ---- at the end -----------------------------------------------------------------------------

    def missing(self) -> dict[str, list[int]]:
        """Return the confirmed messages that no application of a group has finished, by the group.

        Left out is what the store itself has forgotten.
        """
        forgotten = self.records.forgotten
        missing = {
            group: [each for each in self.confirmed if each not in done and each not in forgotten]
            for group, done in self.records.done.items()
        }
        return {group: messages for group, messages in missing.items() if messages}


def _token(frame: Any) -> Token:
    return int(frame.broker_epoch), int(frame.epoch)
