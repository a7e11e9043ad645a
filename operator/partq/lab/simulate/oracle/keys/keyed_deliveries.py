"""What a group of order Key is sent, judged key by key, from frames alone: K1 to K4, and K6."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from partq.core.model import Cause
from partq.lab.simulate.oracle.facts import GroupPartitionFacts, Token
from partq.lab.simulate.oracle.records import Records
from partq.wire import frames

CLOCK_S: Final = 0.01
"""How much earlier than its time a key may go on: clocks of brokers and Redis are read in ms."""


@dataclass(slots=True)
class _Share:
    """What one member has of a partition under one token, as a broker knows it from frames."""

    cursor: int = 0
    held: set[int] = field(default_factory=set)
    """What was sent, and neither acknowledged nor given back since."""
    acked: set[int] = field(default_factory=set)
    before: set[int] = field(default_factory=set)
    """What was acknowledged at this broker, under this token or one before."""
    back: set[int] = field(default_factory=set)
    """What was given back, and not sent since."""
    begun: dict[int, float] = field(default_factory=dict)
    """When the application has begun what it was handed."""
    owed: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """The slots that each notice without an answer has asked for."""

    def is_owed(self, slot: int) -> bool:
        return any(low <= slot < high for lanes in self.owed.values() for low, high in lanes)


@dataclass(slots=True)
class _Wait:
    """A nack that was confirmed: the key of its message waits."""

    due: float
    epoch: int
    """What was nacked under; when the group has begun again since, nothing waits."""


class KeyedDeliveries:
    """Judges deliveries of groups of order Key.

    Args:
        fail: called with each violation.
        now: the simulated time.
    """

    def __init__(self, fail: Callable[[str, str], None], now: Callable[[], float]) -> None:
        self.records: Records
        self.is_on = False
        """Groups have the order Key."""
        self.is_audited = False
        """What is taken back before its delivery is recorded is sent all the same."""
        self.nack_s = 0.0
        """How long the key of a nacked message waits."""
        self.max_span = 0
        self.ack_timeout_s = 0.0
        """After which messages are taken back without a frame that says so; 0: never."""
        self.was_clock_set = False
        """Redis's clock was set: what waits may be over sooner."""
        self._fail = fail
        self._now = now
        self._shares: dict[tuple[str, Token], _Share] = {}
        self._acked: dict[tuple[str, int, int], set[int]] = {}
        self._nacks: dict[tuple[object, int], tuple[GroupPartitionFacts, list[int], _Wait]] = {}
        """Nacks without an answer, by their connection and request."""
        self._waits: dict[str, dict[int, _Wait]] = {}
        """The confirmed nacks of each place of a group, by the offset."""

    def share(self, name: str, token: Token) -> _Share:
        """Return what a token's member has of a partition."""
        share = self._shares.get((name, token))
        if share is None:
            # Its broker knows of acks that are not stored yet; a reset forgets them.
            place = name, token[0], self.records.group_partitions[name].old_epoch
            acked = self._acked.setdefault(place, set())
            share = self._shares[name, token] = _Share(before=acked)
        return share

    # ---- frames ---------------------------------------------------------------------------------

    def assigned(self, name: str, token: Token, cursor: int) -> None:
        """Take the news that a broker gives a partition to a member."""
        self.share(name, token).cursor = cursor

    def asked_back(self, name: str, frame: frames.AskBack) -> None:
        """Take a notice as it leaves a broker."""
        share = self.share(name, (frame.broker_epoch, frame.epoch))
        share.owed[frame.notice] = frame.lanes
        self.records.effects["asked back"] += 1

    def returned(self, name: str, frame: frames.Returned) -> list[int]:
        """Take an answer to a notice that has reached a broker; return the offsets in it."""
        share = self.share(name, (frame.broker_epoch, frame.epoch))
        share.owed.pop(frame.notice, None)
        offsets = [*_offsets(frame.ranges)]
        share.back.update(share.held.intersection(offsets))
        share.held.difference_update(offsets)
        self.records.effects["returned"] += len(offsets)
        return offsets

    def nacked(self, facts: GroupPartitionFacts, flow: object, frame: frames.Nack) -> list[int]:
        """Take a nack that has reached a broker; return the offsets in it."""
        token = frame.broker_epoch, frame.epoch
        share = self.share(facts.name, token)
        offsets = [*_offsets(frame.ranges)]
        taken = [offset for offset in offsets if offset in share.held]
        if not self.ack_timeout_s:
            share.back.update(taken)
            # It waits from now on: the answer comes once that is stored.
            wait = _Wait(self._now() + self.nack_s, token[1])
            self._nacks[flow, frame.request] = facts, taken, wait
        share.held.difference_update(taken)
        return offsets

    def confirmed(self, flow: object, request: int) -> None:
        """Take the news that a broker has confirmed an ack or a nack."""
        if (nacked := self._nacks.pop((flow, request), None)) is not None:
            facts, offsets, wait = nacked
            self._waits.setdefault(facts.name, {}).update(dict.fromkeys(offsets, wait))
            self.records.effects["key waits"] += len(offsets)

    def acked(self, name: str, token: Token, offsets: Iterable[int]) -> None:
        """Take an ack that has reached a broker: what the member has not got does not count."""
        share = self.share(name, token)
        mine = share.held.intersection(offsets)
        share.held -= mine
        share.acked |= mine
        share.before |= mine

    # ---- deliveries -----------------------------------------------------------------------------

    def sent(
        self,
        facts: GroupPartitionFacts,
        token: Token,
        offsets: Sequence[int],
        causes: Sequence[Cause],
        *,
        is_pulled: bool = False,
    ) -> None:
        """Judge what a broker sends to a member: rising offsets, each with its cause."""
        name, slots = facts.name, facts.log.slots
        share = self.share(name, token)
        is_late = self.is_audited or is_pulled
        if not is_late and token[0] == facts.log.broker_epoch:
            self.records.held_keys.sent(facts, offsets)
        for offset, cause in zip(offsets, causes, strict=True):
            if offset >= len(slots):
                return  # which is told as such
            slot = slots[offset]
            where = f"{name}: {offset} of slot {slot} is sent"
            is_timed_out = self.ack_timeout_s > 0 and cause is Cause.ACK_TIMEOUT
            if offset in share.held and not is_timed_out:
                self._fail("K1", f"{where} while its member has it")
            if not is_late:
                if offset in share.acked or facts.is_stored_done(offset):
                    self._fail("K3", f"{where}, and is done with")
                if share.is_owed(slot):
                    self._fail("K2", f"{where}, its member was asked for that slot")
                lower = self._lower_open(facts, share, offset)
                if lower >= 0:
                    self._fail("K2", f"{where} before {lower}")
            self._judge_waits(facts, slot, where)
            share.held.add(offset)
            share.back.discard(offset)
        if self.max_span and offsets and not is_late:
            self._judge_span(facts, share, offsets[-1])

    def _lower_open(self, facts: GroupPartitionFacts, share: _Share, offset: int) -> int:
        """Return a lower offset of the same slot that nobody has and nobody has done; -1: none."""
        slots = facts.log.slots
        slot = slots[offset]
        for lower in range(max(facts.cursor, share.cursor, facts.log.first), offset):
            is_open = slots[lower] == slot and lower not in share.held
            if is_open and not self._is_past(facts, share, lower):
                return lower
        return -1

    def _is_past(self, facts: GroupPartitionFacts, share: _Share, offset: int) -> bool:
        return (
            offset in share.before
            or facts.is_stored_done(offset)
            or offset in facts.letters
            or self.records.is_expired(facts, offset)
        )

    def _judge_waits(self, facts: GroupPartitionFacts, slot: int, where: str) -> None:
        waits = self._waits.get(facts.name)
        if not waits or self.records.was_rolled_back or self.was_clock_set:
            return
        for offset, wait in [*waits.items()]:
            is_over = self._now() >= wait.due - CLOCK_S or wait.epoch <= facts.old_epoch
            if is_over or self.records.needs_no_more(facts, offset) or offset in facts.letters:
                del waits[offset]
            elif offset < len(facts.log.slots) and facts.log.slots[offset] == slot:
                left_s = wait.due - self._now()
                self._fail("K4", f"{where}, and waits for {offset} {left_s:.3f} s more")

    def release(self, facts: GroupPartitionFacts, slot: int) -> None:
        """Learn that a key is released: it does not wait for its time, either."""
        waits, slots = self._waits.get(facts.name, {}), facts.log.slots
        for offset in [each for each in waits if each < len(slots) and slots[each] == slot]:
            del waits[offset]

    def _judge_span(self, facts: GroupPartitionFacts, share: _Share, last: int) -> None:
        low = max(facts.cursor, share.cursor)
        while low < last and self._is_past(facts, share, low):
            low += 1
        if last >= low + self.max_span:
            self._fail("K6", f"{facts.name}: {last} is sent, {low} is open")

    # ---- applications ---------------------------------------------------------------------------

    def handed(self, facts: GroupPartitionFacts, token: Token, offset: int) -> None:
        """Judge what an application begins: all below of its key is done with."""
        log = facts.log
        self.share(facts.name, token).begun[offset] = self._now()
        if token != (log.broker_epoch, facts.top_epoch) or log.is_torn or offset >= len(log.slots):
            return  # the member is cut off, and does not know it yet
        if token[1] <= facts.old_epoch or self.records.was_rolled_back:
            return
        share, slot = self.share(facts.name, token), log.slots[offset]
        for lower in range(max(facts.cursor, share.cursor, log.first), offset):
            is_open = log.slots[lower] == slot and not facts.is_done(lower)
            if is_open and not self._is_past(facts, share, lower):
                text = f"{facts.name}: {offset} of slot {slot} is begun before {lower}"
                self._fail("K2", text)

    def may_be_timed_out(self, name: str, token: Token, offset: int) -> bool:
        """Say whether a message may have been taken back as its time was over."""
        begun = self.share(name, token).begun.get(offset)
        return self.ack_timeout_s > 0 and (
            begun is not None and self._now() - begun >= self.ack_timeout_s
        )

    def given_back(self, facts: GroupPartitionFacts, token: Token) -> Sequence[int]:
        """Return what was given back and not sent again: an ack of it must not count."""
        share = self.share(facts.name, token)
        return [each for each in sorted(share.back) if not self._is_past(facts, share, each)]


def offsets_of(frame: frames.Deliver) -> list[int]:
    """Return the offsets that a delivery holds."""
    if not frame.mask:
        return [*range(frame.start, frame.stop)]
    bits = int.from_bytes(frame.mask, "little")
    return [offset for offset in range(frame.start, frame.stop) if bits >> offset - frame.start & 1]


def causes_of(frame: frames.Deliver, count: int) -> list[Cause]:
    """Return the cause of each of the messages that a delivery holds."""
    return [Cause(number) for number in frame.causes] or [Cause(frame.cause)] * count


def _offsets(ranges: Iterable[tuple[int, int]]) -> Iterable[int]:
    return (offset for start, stop in ranges for offset in range(start, stop))
