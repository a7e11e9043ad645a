"""What members of a Shared group are sent, message by message, from frames alone.

Each message stands alone: K1, K3, K4 and K6 are judged as of a KeyShared group in which each
message is a key. Beside these are turns: T1, which members take them by priority.
"""

from collections.abc import Callable, Sequence
from typing import Final

from partq.core.model import Cause
from partq.lab.simulate.oracle.facts import GROUP, GroupPartitionFacts, Token
from partq.lab.simulate.oracle.isolation import Isolation
from partq.lab.simulate.oracle.keys.keyed_deliveries import CLOCK_S
from partq.lab.simulate.oracle.keys.lane_liveness import TICK_S
from partq.lab.simulate.oracle.keys.shared_deliveries import TAKEN, SharedDeliveries
from partq.lab.simulate.oracle.keys.shared_place import FlowShare, Receiver, SharedPlace
from partq.lab.simulate.oracle.log_contents import LogContents, SeenBatches
from partq.wire import frames

_NONE: Final[Token] = (0, 0)
"""A token that nobody has."""


class TurnDeliveries(SharedDeliveries):
    """Judges deliveries of a group of which any member may have any message."""

    def __init__(
        self,
        contents: LogContents,
        isolation: Isolation,
        fail: Callable[[str, str], None],
        now: Callable[[], float],
        priority_of: Callable[[str], int],
    ) -> None:
        """Prepare it. `priority_of`: of a member, by its name; the lowest number comes first."""
        super().__init__(contents, isolation, fail, now)
        self.liveness.is_by_message = True
        # Another member, which had it meanwhile, may be lost: no bind makes the token higher.
        self.liveness.causes_again = frozenset({*Cause} - {Cause.NONE})
        self._priority_of = priority_of
        self._first_tokens: dict[str, Token] = {}
        """Of each place: the highest broker epoch as the group was made, or created again, with the
        epoch under which it was."""
        self._old_shares: set[FlowShare] = set()
        """What members had as their group was created again: its broker does not know that yet."""
        self._delays: dict[tuple[str, int], dict[int, float]] = {}
        """When what was given back may go on, by place and broker epoch."""

    @classmethod
    def like(cls, other: SharedDeliveries, priority_of: Callable[[str], int]) -> "TurnDeliveries":
        """Return one that judges by what another one knows."""
        return cls(other._contents, other.liveness.isolation, other._fail, other._now, priority_of)

    def was_born(self, facts: GroupPartitionFacts) -> None:
        """Learn that the group is made, or created again."""
        self._first_tokens[facts.name] = facts.log.top_broker_epoch, facts.epoch
        self._old_shares.update(self._place(facts.name, facts.log.broker_epoch).shares.values())

    def is_of_earlier_life(self, facts: GroupPartitionFacts, token: Token) -> bool:
        """Say whether a broker speaks of an earlier life of the group, or from before a reset.

        It binds flows without the store, under epochs above that with which the group has begun.
        """
        first = self._first_tokens.get(facts.name, _NONE) if facts.group == GROUP else _NONE
        return token <= max(facts.old_token, first)

    def began_again(self, facts: GroupPartitionFacts) -> None:
        """Learn that the group begins again in a partition: what was sent before counts no more."""
        super().began_again(facts)
        for key in [key for key in self._delays if key[0] == facts.name]:
            del self._delays[key]

    # ---- frames ---------------------------------------------------------------------------------

    def judge(
        self,
        end: Receiver,
        facts_of: Callable[[object], GroupPartitionFacts],
        seen: SeenBatches,
        frame: frames.AnyFrame,
        payload: bytes,
    ) -> None:
        """Judge a frame to a member; `facts_of`: a frame's place, `seen`: of its connection."""
        if isinstance(frame, frames.Deliver | frames.Assigned):
            name = facts_of(frame).name
            shares = self._place(name, frame.broker_epoch).shares.values()
            if any(share.end.is_open and share in self._old_shares for share in shares):
                # All that it says is of the life before.
                first = self._first_tokens.get(name, _NONE)
                self._first_tokens[name] = max(first, (frame.broker_epoch, frame.epoch))
        super().judge(end, facts_of, seen, frame, payload)

    def moved(self, facts: GroupPartitionFacts, end: Receiver, frame: frames.Lanes) -> None:
        """Judge that no member is given slots."""
        self._fail("K3", f"{facts.name}: {end.pipe.target} gets slots of a Shared group")

    def confirmed(self, end: Receiver, request: int) -> None:
        """Take the news that a broker has confirmed an ack or a nack."""
        nacked = self._nacks.pop((end, request), None)
        if nacked is not None:
            name, offsets, until = nacked
            facts = self.records.group_partitions[name]
            # It waits at this broker alone: the next one does not know of it.
            for (of, epoch), place in self._places.items():
                if of == name and end in place.shares and epoch == facts.log.broker_epoch:
                    delays = self._delays.setdefault((name, epoch), {})
                    delays.update((o, until) for o in offsets if o in place.shares[end].back)
            self.records.effects["message waits"] += len(offsets)
            return
        super().confirmed(end, request)

    # ---- deliveries -----------------------------------------------------------------------------

    def sent(
        self,
        facts: GroupPartitionFacts,
        end: Receiver,
        token: Token,
        number: int,
        offsets: Sequence[int],
        causes: Sequence[Cause],
    ) -> None:
        """Judge what a broker sends to a member, message by message.

        `number`: of the delivery, by which the copies of a message are told apart.
        """
        name = facts.name
        place = self._place(name, token[0])
        share = place.shares.get(end)
        if share is None or token[1] < min(share.epochs):
            self._fail("S1", f"{name}: delivers under {token} to a flow without it")
            return
        if share.owed:
            self._fail("K2", f"{name}: {share.name} is sent {offsets}, and was asked for all")
        for offset, cause in zip(offsets, causes, strict=True):
            if offset >= len(facts.log.slots):
                return  # which is told as such
            self._judge_sent(facts, place, share, offset, cause, token)
            share.held[offset] = number
            share.begun.pop(offset, None)
            self.liveness.touch(facts, [offset])
            for each in place.shares.values():
                each.back.discard(offset)
        if self.max_span and offsets:
            self._judge_span(facts, place, max(offsets))

    def _judge_sent(
        self,
        facts: GroupPartitionFacts,
        place: SharedPlace,
        share: FlowShare,
        offset: int,
        cause: Cause,
        token: Token,
    ) -> None:
        name = facts.name
        where = f"{name}: {offset} is sent to {share.name}"
        top = self._tops.get((name, offset), token)
        if token < top and not self.records.was_rolled_back:
            self._fail("S1", f"{where} under {token} after {top}")
        self._tops[name, offset] = max(top, token)
        is_acked = place.acked.pop(offset, None)
        if self._contents.is_audited:
            pass  # what was taken back before its delivery is recorded is sent all the same
        elif is_acked or facts.is_stored_done(offset):
            self._fail("K3", f"{where}, and is done with")
        elif is_acked is False and cause not in TAKEN:
            self._fail("K3", f"{where}, and its ack has come")
        if offset in share.held and not share.may_be_timed_out(offset, self._times_out_at):
            self._fail("K1", f"{where} while it has it")
        was_taken = self._judge_others(facts, place, share, offset, cause, where)
        if not (was_taken or cause in TAKEN or self.records.was_rolled_back):
            self.liveness.judge_sent(facts, share, offset)
        until = self._delays.get((name, token[0]), {}).pop(offset, 0.0)
        left_s = until - CLOCK_S - self._now()
        if left_s > 0 and not (self.records.was_rolled_back or self.was_clock_set):
            self._fail("K4", f"{where}, and waits for {left_s:.3f} s more")

    def _judge_others(
        self,
        facts: GroupPartitionFacts,
        place: SharedPlace,
        share: FlowShare,
        offset: int,
        cause: Cause,
        where: str,
    ) -> bool:
        """Judge that no other member has a message, unless it was lost; return whether one had."""
        del cause
        was_taken = False
        for other in [*place.shares.values()]:
            if other is share or offset not in other.held:
                continue
            was_taken = True
            if offset in facts.letters or other.may_be_timed_out(offset, self._times_out_at):
                del other.held[offset]
            elif not other.end.is_open:
                place.shares.pop(other.end, None)
                self.records.effects["share lost"] += 1
            else:
                self._fail("K1", f"{where} while {other.name} has it")
        return was_taken

    # ---- applications ---------------------------------------------------------------------------

    def handed(
        self, facts: GroupPartitionFacts, member: str, token: Token, offset: int, idle_s: float
    ) -> None:
        """Judge what an application begins: nobody else has begun it.

        `idle_s`: for how long it had nothing to do.
        """
        log, place = facts.log, self._place(facts.name, token[0])
        has_it = [share for share in place.shares.values() if offset in share.held]
        holders = [share for share in has_it if share.name == member]
        for share in holders:
            share.begun[offset] = self._now()
            self.liveness.judge_handed(facts, share, offset, idle_s)
            if self.ack_timeout_s:
                late_s = self.ack_timeout_s + self.liveness.nack_s + TICK_S
                self.liveness.touch(facts, [offset], late_s)
        if log.is_torn or token[0] != log.broker_epoch or self.records.was_rolled_back:
            return  # the member is cut off, and does not know it yet
        is_past = self.is_of_earlier_life(facts, token)
        if is_past or not any(share.end.is_open for share in holders):
            return  # its flow is lost
        for other in has_it:
            is_late = other.may_be_timed_out(offset, self._times_out_at)
            if other.name != member and other.end.is_open and not is_late:
                self._fail("K1", f"{facts.name}: {member} begins {offset}, {other.name} has it")
