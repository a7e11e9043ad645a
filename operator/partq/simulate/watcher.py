"""The oracle: told of everything that leaves a process, it says at once what must not be.

It judges what can be seen from outside: scripts of the store, frames of brokers, answers to the
coordinator, and what applications are handed.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from partq.broker.broker import Broker
from partq.broker.flow import Flow
from partq.broker.subscription import Subscription
from partq.core.model import Cause, PartitionId
from partq.simulate import answers
from partq.simulate.hostile import FIRST_REQUEST, forged
from partq.simulate.isolation import Isolation
from partq.simulate.loop import SimLoop
from partq.simulate.movement import Movement
from partq.simulate.network import End
from partq.simulate.records import PartitionFacts, Records, Token, Violation
from partq.simulate.troubles import Troubles
from partq.wire import frames

GROUP: Final = "group"
MANY: Final = 1_000_000
"""More messages than any partition has."""
MAX_TRACE: Final = 2000


class Message(Protocol):
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
class _Flow:
    """What was sent on one connection, per token."""

    position: dict[tuple[str, Token], tuple[int, int]] = field(default_factory=dict)
    """(delivery number, next offset) of each token."""
    acks: dict[int, tuple[str, Token, list[int]]] = field(default_factory=dict)
    """What each ack that came is about."""


@dataclass(slots=True)
class _Pause:
    until: float
    drain_until: float


class Watcher:
    """Collects what happens; `violation` is the first thing that must not have."""

    records: Records
    _movement: Movement

    def __init__(self, loop: SimLoop, hostile: random.Random) -> None:
        self.violation: Violation | None = None
        self.is_over = False
        """Nothing is judged any more: all processes are being ended."""
        self.hostile_count = 0
        """How many acks that must not count are still to be sent."""
        self.trace: list[tuple[float, str]] = []
        self.confirmed: dict[int, float] = {}
        """When each message was confirmed to its producer."""
        self.handed_count = 0
        self.duplicate_count = 0
        self.commit_count = 0
        self.moves: Counter[str] = Counter()
        """How often each partition has left a member."""
        self.pauses_s: list[float] = []
        """How long each partition that was handed over belonged to nobody."""
        self._loop = loop
        self._rng = hostile
        self._tokens: dict[tuple[str, Token], End] = {}
        self._top: dict[str, Token] = {}
        self._pauses: dict[tuple[str, int, int], _Pause] = {}
        self._paused_at: dict[str, float] = {}
        """Since when a partition is paused that no flow has been given yet."""
        self._committed: set[tuple[str, int]] = set()
        self._sources: dict[tuple[str, int], tuple[Subscription, Flow | None]] = {}
        """Whose flow was bound as a commit came."""
        self._cut: set[tuple[str, int]] = set()
        """Commits that were stored while the source was bound."""
        self._seen: dict[tuple[str, object, str], tuple[Token, int]] = {}
        self._handed: set[int] = set()
        self._handed_first: Counter[int] = Counter()
        """How often each message was handed out without a cause, as for the first time."""
        self._flows: dict[End, _Flow] = {}
        self.troubles = Troubles(loop.time)
        self._answers = answers.Answers(self.fail)
        self._isolation = Isolation(self.troubles, self.fail, loop.time)

    def follow(self, records: Records, movement: Movement) -> None:
        """Judge by these records; `movement` is told of what is handed over."""
        self.records = records
        self._movement = movement
        records.on_commit = self._commit_stored

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

    def sending(self, name: str, broker: Broker, end: End) -> Callable[[bytes], None]:
        """Return what is told of every frame that a broker sends on a consumer's connection."""
        flow = self._flows[end] = _Flow()

        def sent(data: bytes) -> None:
            frame, payload = frames.decode(data)
            match frame:
                case frames.Deliver():
                    self._delivered(name, end, flow, frame, payload)
                case frames.Assigned():
                    self._assigned(name, end, flow, frame)
                case frames.Paused():
                    self._isolation.paused(_name(frame), end.pipe.target, _token(frame))
                case frames.Resumed():
                    self._isolation.resumed(_name(frame), end.pipe.target)
                case frames.Revoked():
                    to = (end.pipe.target, name)
                    facts = self.records.partitions[_name(frame)]
                    self._isolation.revoked(facts, _name(frame), to, _token(frame))
                case frames.AckConfirmed(request):
                    self._confirmed(name, flow, request)
                case _:
                    pass

        return sent

    def got(self, end: End, frame: frames.Ack) -> None:
        """Take an ack that has reached a broker."""
        offsets = [*range(frame.upto)] if frame.upto > 0 else []
        offsets += [offset for start, stop in frame.ranges for offset in range(start, stop)]
        token = (frame.broker_epoch, frame.epoch)
        self._flows[end].acks[frame.request] = (_name(frame), token, offsets)

    def hostile(self, end: End, frame: frames.Ack) -> frames.Ack | None:
        """Return an ack that must not count, to go behind a good one; None: not now."""
        if not self.hostile_count:
            return None
        self.hostile_count -= 1
        name = _name(frame)
        _, position = self._flows[end].position.get((name, _token(frame)), (0, MANY))
        beyond = position + 1 if position < len(self.records.partitions[name].ids) else MANY
        return forged(frame, self.hostile_count, beyond, self._rng)

    def _assigned(self, broker: str, end: End, flow: _Flow, frame: frames.Assigned) -> None:
        name, token = _name(frame), _token(frame)
        known = self._tokens.setdefault((name, token), end)
        if known is not end:
            self.fail("S1", f"{name}: token {token} was given to two flows")
        flow.position[name, token] = (0, frame.cursor)
        self._isolation.assigned(
            self.records.partitions[name], name, (end.pipe.target, broker), token
        )
        if (paused_at := self._paused_at.pop(name, None)) is not None:
            self.pauses_s.append(self._loop.time() - paused_at)
        self.note(f"{end.process.name} assigns {name} to {end.pipe.target} under {token}")

    def _delivered(
        self, broker: str, end: End, flow: _Flow, frame: frames.Deliver, payload: bytes
    ) -> None:
        name, token = _name(frame), (frame.broker_epoch, frame.epoch)
        facts = self.records.partitions[name]
        if self._tokens.get((name, token)) is not end:
            self.fail("S1", f"{name}: {broker} delivers under {token} to a flow without it")
            return
        top = self._top.get(name, (0, 0))
        if token < top and not self.records.was_rolled_back:
            self.fail("S1", f"{name}: {broker} delivers under {token} after {top}")
        self._top[name] = max(top, token)
        if facts.is_torn:
            return  # this broker does not know yet that the store has forgotten
        number, position = flow.position[name, token]
        skipped = {o for start, stop in frame.skip for o in range(start, stop)}
        if frame.delivery == number:
            skipped.update(range(position, frame.start))
            if frame.start < position:
                self.fail("S3", f"{name}: delivers {frame.start} again without a cause")
        elif frame.delivery < number or frame.start > position:
            self.fail("S3", f"{name}: goes on at {frame.start} after {position}")
        flow.position[name, token] = (frame.delivery, frame.stop)
        for offset in skipped:
            if offset >= len(facts.ids) or facts.ids[offset] not in self.records.finished:
                self.fail("S3", f"{name}: offset {offset} is skipped, and nobody has done it")
        stored = facts.batches.get(frame.first_offset)
        if stored is None or stored.data != payload:
            self.fail("G1", f"{name}: what is sent as {frame.first_offset} is not in the log there")
        elif stored.broker_epoch != frame.append_broker_epoch:
            self.fail("G1", f"{name}: {frame.first_offset} was stored under another broker epoch")
        elif not stored.first <= frame.start < frame.stop <= stored.first + len(stored.ids):
            self.fail("G1", f"{name}: {frame.start} to {frame.stop} is not in that batch")

    def _confirmed(self, broker: str, flow: _Flow, request: int) -> None:
        if request >= FIRST_REQUEST:
            self.fail("G2", f"{broker} has confirmed an ack that must not count: {request}")
            return
        self.confirmed_ack(broker, *flow.acks.pop(request))

    def confirmed_ack(self, broker: str, name: str, token: Token, offsets: Sequence[int]) -> None:
        """Take the news that a broker has confirmed an ack."""
        facts = self.records.partitions[name]
        if facts.broker_epoch != token[0] or facts.is_torn or self.records.was_rolled_back:
            return
        if not all(offset < facts.cursor or offset in facts.acked for offset in offsets):
            self.fail("S2", f"{name}: {broker} has confirmed an ack that is not stored")

    # ---- answers to members that pull -----------------------------------------------------------

    def pulled(self, flow: answers.Flow, answer: dict[str, Any]) -> None:
        """Take an answer to a pull, as it leaves a broker."""
        self._answers.judge(self.records, flow, answer)

    # ---- answers to the coordinator -------------------------------------------------------------

    def called(self, broker: Broker, kind: str, asked: Any) -> Callable[[Any], None]:
        """Return what is told of the answer to a call that has come to a broker."""
        began = self._loop.time()
        if kind == "commit":
            self._note_sources(broker, asked)
        elif kind == "pause":
            for item in asked.pauses:
                self._isolation.asked_to_pause(item.partition, item.broker_epoch, item.attempt)
                self._movement.asked_to_pause(item.partition, item.attempt)
        items = {item.partition: item for item in getattr(asked, _LISTS[kind])}

        def answered(answer: Any) -> None:
            for result in answer["results"]:
                if "error" not in result:
                    judge(items[result["partition"]], result, began)

        judge = getattr(self, f"_judge_{kind}")
        return answered

    def asked_to_yield(self, names: Sequence[str]) -> None:
        """Take a coordinator's call that makes a broker give partitions up."""
        for name in names:
            self._isolation.asked_to_yield(name, self.records.partitions[name].broker_epoch)

    def _judge_pause(self, item: Any, result: Any, began: float) -> None:
        key = (item.partition, item.broker_epoch, item.attempt)
        known = self._pauses.get(key)
        now = self._loop.time()
        if known is None:
            known = self._pauses[key] = _Pause(now, now + item.drain_ms / 1000)
            self._paused_at.setdefault(item.partition, now)
        elif now > known.until + 0.001:
            self.fail("attempts", f"{item.partition}: attempt {item.attempt} is paused anew")
        known.until = now + item.lease_ms / 1000
        self._judge_drain(item, result, began)

    def _judge_drain(self, item: Any, result: Any, began: float) -> None:
        facts = self.records.partitions[item.partition]
        if not result["is_drained"] or facts.is_torn or facts.broker_epoch != item.broker_epoch:
            return
        if not facts.covers(result["last_delivered"] + 1):
            self.fail(
                "E4",
                f"{item.partition}: drained up to {result['last_delivered']}, and stored are acks "
                f"up to {facts.cursor}",
            )

    def _judge_cancel(self, item: Any, result: Any, began: float) -> None:
        self._pauses.pop((item.partition, item.broker_epoch, item.attempt), None)
        self._paused_at.pop(item.partition, None)

    def _judge_commit(self, item: Any, result: Any, began: float) -> None:
        if (item.partition, item.attempt) in self._committed:
            return
        self._committed.add((item.partition, item.attempt))
        self.commit_count += 1
        self.moves[item.partition] += bool(item.source)
        self.note(
            f"committed {item.partition} from {item.source or 'nobody'} to "
            f"{item.target or 'nobody'}, attempt {item.attempt} {item.cause}"
        )
        pause = self._pauses.get((item.partition, item.broker_epoch, item.attempt))
        needs_pause = item.source and (
            not item.cause or (item.partition, item.attempt) in self._cut
        )
        if needs_pause and (pause is None or pause.until <= began):
            self.fail("E4", f"{item.partition}: committed without a pause in force")
        if result["was_forced"] and (pause is None or self._loop.time() < pause.drain_until):
            self.fail("E4", f"{item.partition}: cut off before its drain was over")

    def _note_sources(self, broker: Broker, asked: Any) -> None:
        for item in asked.commits:
            owned = broker.owned.get(PartitionId.parse(item.partition))
            found = owned.groups.get(GROUP) if owned is not None else None
            if found is not None:
                self._sources.setdefault((item.partition, item.attempt), (found, found.flow))

    def _commit_stored(self, name: str, attempt: int, source: str, target: str) -> None:
        subscription, flow = self._sources.get((name, attempt), (None, None))
        is_bound = flow is not None and subscription is not None and subscription.flow is flow
        if is_bound:
            self._cut.add((name, attempt))
        self._movement.committed(name, attempt, source, target, is_bound=is_bound)

    # ---- what applications are handed -----------------------------------------------------------

    def handed(
        self, member: str, life: object, delivery: Message, *, is_pulled: bool = False
    ) -> None:
        """Take a message that an application begins to work on.

        `is_pulled`: nothing tells it that the broker which answered has gone silent since.
        """
        name = str(delivery.partition)
        token = (int(delivery.token.broker_epoch), int(delivery.token.epoch))
        facts = self.records.partitions[name]
        message = int(delivery.value)
        self.handed_count += 1
        last = self._seen.get((member, life, name))
        if last is not None and token < last[0]:
            self.fail("G2", f"{name}: {member} is handed {token} after {last[0]}")
        elif last is not None and token == last[0] and delivery.offset <= last[1]:
            self.fail("G1", f"{name}: {member} is handed {delivery.offset} after {last[1]}")
        self._seen[member, life, name] = (token, delivery.offset)
        is_silent = token[0] < facts.taken_over and not is_pulled
        if is_silent and not self.records.was_rolled_back:
            self.fail("S1", f"{name}: {member} is handed {token}, {facts.taken_over} has begun")
        self.duplicate_count += message in self._handed
        self._handed.add(message)
        if delivery.cause is Cause.NONE and not self.records.was_rolled_back:
            stored_at = facts.stored_at[delivery.offset]
            self._isolation.handed(name, member, life, token, stored_at)
        if delivery.cause is Cause.NONE:
            # Which of two comes first does not matter: the older one may have been long on its way.
            times = self._handed_first[message] = self._handed_first[message] + 1
            if times > max(1, self.records.append_counts.get(message, 0)):
                self.fail("G4", f"{name}: {member} is handed {delivery.offset} again, no cause")

    def waits(self, life: object) -> None:
        """Learn that an application waits for its next message."""
        self._isolation.waits(life)

    def finished(self, delivery: Message) -> None:
        """Take a message that an application has finished."""
        self.records.finished.add(int(delivery.value))

    # ---- at the end -----------------------------------------------------------------------------

    def missing(self) -> list[int]:
        """Return the confirmed messages that no application has finished.

        Left out is what the store itself has forgotten.
        """
        done = self.records.finished | self.records.forgotten
        return [message for message in self.confirmed if message not in done]

    def facts(self, partition: PartitionId) -> PartitionFacts:
        """Return what is known of a partition."""
        return self.records.partitions[str(partition)]


_LISTS: Final = {"pause": "pauses", "drain": "drains", "commit": "commits", "cancel": "cancels"}


def _name(frame: Any) -> str:
    return f"{frame.generation}.{frame.partition}"


def _token(frame: Any) -> Token:
    return frame.broker_epoch, frame.epoch
