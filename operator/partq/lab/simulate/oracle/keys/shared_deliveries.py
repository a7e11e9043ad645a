"""What members of a KeyShared group are sent, slot by slot, from frames alone: K1 to K4, and K6.

The same rules as in `keyed_deliveries.py`, for a partition of which several members have slots.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import Final

from partq.core.model import Cause
from partq.lab.simulate.oracle.facts import GROUP, GroupPartitionFacts, Token
from partq.lab.simulate.oracle.forged_acks import FIRST_REQUEST, forged_of_share
from partq.lab.simulate.oracle.isolation import Isolation
from partq.lab.simulate.oracle.keys.keyed_deliveries import causes_of, offsets_of
from partq.lab.simulate.oracle.keys.lane_liveness import TICK_S, LaneLiveness
from partq.lab.simulate.oracle.keys.shared_place import (
    FlowShare,
    KeyWaits,
    Receiver,
    SharedPlace,
    is_in,
    offsets_in,
)
from partq.lab.simulate.oracle.log_contents import LogContents, SeenBatches
from partq.lab.simulate.oracle.records import Records
from partq.wire import frames

TAKEN: Final = frozenset({Cause.FORCED_COMMIT, Cause.ACK_TIMEOUT})
"""Why a broker takes what an application still has."""


class SharedDeliveries:
    """Judges deliveries of a group whose members share the keys of partitions.

    Args:
        contents: judges what deliveries hold.
        isolation: knows what holds up members.
        fail: called with each violation.
        now: the simulated time.
    """

    def __init__(
        self,
        contents: LogContents,
        isolation: Isolation,
        fail: Callable[[str, str], None],
        now: Callable[[], float],
    ) -> None:
        self.records: Records
        self._contents = contents
        self.is_on = False
        """The group `GROUP` is KeyShared."""
        self.ack_timeout_s = 0.0
        """After which messages are taken back without a frame that says so; 0: never."""
        self.max_span = 0
        self.was_clock_set = False
        """Redis's clock was set: what waits may be over sooner."""
        self._fail = fail
        self._now = now
        self.liveness = LaneLiveness(
            isolation, fail, now, lambda facts: self.records.held_keys.record_of(facts)
        )
        self._places: dict[tuple[str, int], SharedPlace] = {}
        """By name and broker epoch."""
        self._tops: dict[tuple[str, int], Token] = {}
        """The highest token of each slot."""
        self._acks: dict[tuple[Receiver, int], tuple[GroupPartitionFacts, int, list[int]]] = {}
        """What each ack counts for that has no answer yet."""
        self._nacks: dict[tuple[Receiver, int], tuple[str, list[int], float]] = {}
        self._forged: dict[tuple[Receiver, int], Callable[[], bool]] = {}
        """Of forged acks of what another member had: whether that one is done with it."""
        self._waits = KeyWaits()
        self._born_at: dict[str, int] = {}
        """The last commit of each partition before the group was made."""
        self.top_rounds: dict[tuple[str, int], int] = {}
        """The highest epoch of each partition that a member was told, by its broker epoch."""

    @property
    def _times_out_at(self) -> float:
        """What began by then may have been taken back as its time was over."""
        return self._now() - self.ack_timeout_s if self.ack_timeout_s else -inf

    def _place(self, name: str, broker_epoch: int) -> SharedPlace:
        return self._places.setdefault((name, broker_epoch), SharedPlace())

    def roll_back(self) -> None:
        """Learn that the store has come back with older keys: epochs go on from the stored ones."""
        for facts in self.records.group_partitions.values():
            if self.is_on and facts.group == GROUP and facts.is_there:
                facts.old_epoch = min(facts.old_epoch, facts.epoch)

    def was_born(self, facts: GroupPartitionFacts) -> None:
        """Learn that the group is made, or created again."""
        self._born_at[facts.name] = facts.commit_epoch

    def is_of_earlier_life(self, facts: GroupPartitionFacts, token: Token) -> bool:
        """Say whether a broker speaks of an earlier life of the group, or from before a reset.

        It binds flows without the store, so it does not hear at once of a group created again.
        Nobody has a part then until one is given to a member.
        """
        is_shared = self.is_on and facts.group == GROUP
        is_unborn = is_shared and facts.commit_epoch == self._born_at.get(facts.name, -1)
        return is_unborn or token <= facts.old_token

    def round_of(self, facts: GroupPartitionFacts) -> int:
        """Return the highest epoch of a partition that a member of its group was told."""
        is_shared = self.is_on and facts.group == GROUP
        place = facts.name, facts.log.broker_epoch
        return self.top_rounds.get(place, 0) if is_shared else 0

    def began_again(self, facts: GroupPartitionFacts) -> None:
        """Learn that the group begins again in a partition: what was sent before counts no more."""
        name = facts.name
        for key in [key for key in self._places if key[0] == name]:
            shares = self._places[key].shares.values()
            for share in shares:
                share.held.clear()
                share.back.clear()
                share.owed.clear()
            self._places[key].acked.clear()
        self._waits.forget(name)

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
        match frame:
            case frames.Deliver():
                self._delivered(end, facts_of(frame), seen, frame, payload)
            case frames.Assigned():
                self.assigned(facts_of(frame), end, frame)
            case frames.Lanes():
                self.moved(facts_of(frame), end, frame)
            case frames.AskBack():
                self.asked_back(facts_of(frame).name, end, frame)
            case frames.Rewound(start=start):
                self._fail("K3", f"{facts_of(frame).name}: steps back to {start}")
            case frames.Revoked():
                self.revoked(facts_of(frame), end, frame.broker_epoch)
            case frames.AckConfirmed(request):
                self.confirmed(end, request)
            case _:
                pass

    def _delivered(
        self,
        end: Receiver,
        facts: GroupPartitionFacts,
        seen: SeenBatches,
        frame: frames.Deliver,
        payload: bytes,
    ) -> None:
        self.liveness.spend(end, len(offsets := offsets_of(frame)))
        if facts.log.is_torn:
            return  # this broker does not know yet that the store has forgotten
        token = frame.broker_epoch, frame.epoch
        is_past = self.is_of_earlier_life(facts, token)
        epoch = 0 if is_past else frame.epoch
        self._contents.judge(seen, facts, frame, payload, offsets, epoch)
        if not is_past:
            causes = causes_of(frame, len(offsets))
            self.sent(facts, end, token, frame.delivery, offsets, causes)
            facts.sent.update(offsets)
            self.records.rescales.sent(facts, offsets)

    def assigned(self, facts: GroupPartitionFacts, end: Receiver, frame: frames.Assigned) -> None:
        """Take the news that a broker gives a member slots of a partition."""
        name = facts.name
        place = self._place(name, frame.broker_epoch)
        if frame.epoch in place.binds:
            self._fail("S1", f"{name}: epoch {frame.epoch} is told to a second flow")
        place.binds.add(frame.epoch)
        self._note_epoch(name, frame)
        share = place.shares[end] = FlowShare(end, {frame.epoch})
        if not self.is_of_earlier_life(facts, (frame.broker_epoch, frame.epoch)):
            self.liveness.bound(facts, share, frame.broker_epoch)

    def moved(self, facts: GroupPartitionFacts, end: Receiver, frame: frames.Lanes) -> None:
        """Take the news that a member has other slots from now on."""
        place = self._place(facts.name, frame.broker_epoch)
        share = place.shares.get(end)
        if share is None:
            self._fail("K3", f"{facts.name}: {end.pipe.target} gets slots, and has no share")
            return
        self._note_epoch(facts.name, frame)
        share.epochs.add(frame.epoch)
        before, share.lanes = share.lanes, list(frame.lanes)
        slots = {slot for slot in facts.log.slots if share.has_slot(slot)}
        self.liveness.gained(facts, (slot for slot in slots if not is_in(before, slot)))
        self.records.effects["slots moved"] += 1

    def _note_epoch(self, name: str, frame: frames.Assigned | frames.Lanes) -> None:
        place = name, frame.broker_epoch
        self.top_rounds[place] = max(self.top_rounds.get(place, 0), frame.epoch)

    def revoked(self, facts: GroupPartitionFacts, end: Receiver, broker_epoch: int) -> None:
        """Take the news that a member has nothing of a partition any more."""
        if (share := self._place(facts.name, broker_epoch).shares.pop(end, None)) is not None:
            self.liveness.touch(facts, share.held)
            self.liveness.revoked(facts, share, broker_epoch)

    def asked_back(self, name: str, end: Receiver, frame: frames.AskBack) -> None:
        """Take a notice as it leaves a broker."""
        if (share := self._place(name, frame.broker_epoch).shares.get(end)) is not None:
            share.owed[frame.notice] = frame.lanes
            self.records.effects["asked back"] += 1

    def gave_back(
        self,
        facts: GroupPartitionFacts,
        end: Receiver,
        frame: frames.Release | frames.Returned | frames.Nack,
    ) -> None:
        """Take a frame by which a member gives messages back, as it reaches a broker."""
        name = facts.name
        share = self._place(name, frame.broker_epoch).shares.get(end)
        if share is None:
            return
        if isinstance(frame, frames.Release):
            released = [each for each in share.held if each >= frame.start]
            self.liveness.touch(facts, released)
            for offset in released:
                del share.held[offset]
            return
        if isinstance(frame, frames.Returned):
            owed = share.owed.pop(frame.notice, [])
            self.liveness.gained(facts, {slot for slot in facts.log.slots if is_in(owed, slot)})
            self.liveness.touch(facts, offsets := [*offsets_in(frame.ranges)])
            for offset in offsets:
                if share.held.pop(offset, None) is not None:
                    share.back.add(offset)
                self.records.effects["returned"] += 1
            return
        taken = [o for o in offsets_in(frame.ranges) if share.has_copy(o, frame.delivery)]
        for offset in taken:
            del share.held[offset]
        share.back.update(taken)
        self.liveness.gave_back(facts, taken)
        # Else nobody knows what the broker had taken back before.
        if frame.delay_ms and not self.ack_timeout_s:
            due = self._now() + self.liveness.nack_s
            self._nacks[end, frame.request] = (name, taken, due)

    def acked(
        self, facts: GroupPartitionFacts, end: Receiver, frame: frames.Ack, offsets: Iterable[int]
    ) -> None:
        """Take an ack that has reached a broker: of what the member has not it does not count."""
        place = self._place(facts.name, frame.broker_epoch)
        share = place.shares.get(end)
        if share is None or frame.broker_epoch != facts.log.broker_epoch:
            return
        mine = [offset for offset in offsets if share.has_copy(offset, frame.delivery)]
        for offset in mine:
            del share.held[offset]
        self.liveness.touch(facts, mine)
        place.acked.update(dict.fromkeys(mine, False))
        self._acks[end, frame.request] = facts, frame.broker_epoch, mine

    def forge(
        self,
        facts: GroupPartitionFacts,
        end: Receiver,
        good: frames.Ack,
        number: int,
        draw: random.Random,
    ) -> frames.Ack | None:
        """Return an ack that must not count, to go behind a good one; None: not now.

        It is under an older token, or of what its member does not have: another one has it, or it
        was given back.
        """
        place = self._place(facts.name, good.broker_epoch)
        share = place.shares.get(end)
        if share is None or good.broker_epoch != facts.log.broker_epoch or facts.log.is_torn:
            return None
        others = [other for other in place.shares.values() if other is not share]
        of_others = [offset for other in others for offset in sorted(other.held)]
        back = [offset for offset in sorted(share.back) if not self._is_past(facts, place, offset)]
        forged, offset = forged_of_share(good, number, share.oldest, (of_others, back), draw)
        if offset is not None:
            self._forged[end, forged.request] = partial(self._is_past, facts, place, offset)
        return forged

    def confirmed(self, end: Receiver, request: int) -> None:
        """Take the news that a broker has confirmed an ack or a nack."""
        if request >= FIRST_REQUEST:
            may_count = self._forged.get((end, request))
            # Its member may have acknowledged it before the broker has looked.
            if may_count is None or not may_count():
                self._fail("G2", f"{end.pipe.target}: an ack that must not count is confirmed")
            return
        if (nacked := self._nacks.pop((end, request), None)) is not None:
            name, offsets, wait = nacked
            self._waits.add(name, offsets, wait)
            self.records.effects["key waits"] += len(offsets)
        if (acked := self._acks.pop((end, request), None)) is not None:
            facts, broker_epoch, mine = acked
            is_past = facts.log.is_torn or self.records.was_rolled_back
            is_past |= broker_epoch != facts.log.broker_epoch
            place = self._place(facts.name, broker_epoch)
            counted = [offset for offset in mine if offset in place.acked]
            place.acked.update(dict.fromkeys(counted, True))
            if not is_past and not all(map(facts.is_stored_done, counted)):
                self._fail("S2", f"{facts.name}: an ack is confirmed that is not stored")

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
        """Judge what a broker sends to a member: rising offsets, each with its cause.

        `number`: of the delivery, by which the copies of a message are told apart.
        """
        name, slots = facts.name, facts.log.slots
        place = self._place(name, token[0])
        share = place.shares.get(end)
        if share is None or token[1] not in share.epochs:
            self._fail("S1", f"{name}: delivers under {token} to a flow without it")
            return
        for offset, cause in zip(offsets, causes, strict=True):
            if offset >= len(slots):
                return  # which is told as such
            slot = slots[offset]
            where = f"{name}: {offset} of slot {slot} is sent to {share.name}"
            top = self._tops.get((name, slot), token)
            if token < top and not self.records.was_rolled_back:
                self._fail("S1", f"{where} under {token} after {top}")
            self._tops[name, slot] = max(top, token)
            if not share.has_slot(slot):
                self._fail("K3", f"{where}, and belongs to another")
            is_acked = place.acked.pop(offset, None)
            is_owed = share.is_owed(slot)
            lower = self._lower_open(facts, place, share, offset)
            if self._contents.is_audited:
                # What was taken back before its delivery is recorded is sent all the same.
                is_acked, is_owed, lower = None, False, -1
            elif is_acked or facts.is_stored_done(offset):
                self._fail("K3", f"{where}, and is done with")
            elif is_acked is False and cause not in TAKEN:
                self._fail("K3", f"{where}, and its ack has come")
            if is_owed:
                self._fail("K2", f"{where}, which was asked for that slot")
            if offset in share.held and not share.may_be_timed_out(offset, self._times_out_at):
                self._fail("K1", f"{where} while it has it")
            was_taken = self._judge_others(facts, place, share, offset, cause, where)
            if not (was_taken or cause in TAKEN or self.records.was_rolled_back):
                self.liveness.judge_sent(facts, share, offset)
            if lower >= 0:
                self._fail("K2", f"{where} before {lower}")
            self._judge_waits(facts, slot, where)
            share.held[offset] = number
            share.begun.pop(offset, None)
            self.liveness.touch(facts, [offset])
            share.back.discard(offset)
        if self.max_span and offsets:
            self._judge_span(facts, place, offsets[-1])

    def _judge_others(
        self,
        facts: GroupPartitionFacts,
        place: SharedPlace,
        share: FlowShare,
        offset: int,
        cause: Cause,
        where: str,
    ) -> bool:
        """Judge that no other member has a message of the slot, unless it was lost or forced.

        Returns whether one had any.
        """
        slots, was_taken = facts.log.slots, False
        slot = slots[offset]
        for other in [*place.shares.values()]:
            mine = [each for each in other.held if each < len(slots) and slots[each] == slot]
            was_taken |= other is not share and bool(mine)
            for each in [*mine]:
                # By force, or as its time was over; that may have been once too often.
                is_late = other is not share and other.may_be_timed_out(each, self._times_out_at)
                if each in facts.letters or is_late:
                    del other.held[each]
                    mine.remove(each)
            if other is share or not mine:
                continue
            if not other.end.is_open:
                place.shares.pop(other.end, None)
                self.records.effects["share lost"] += 1
            elif cause is Cause.FORCED_COMMIT:
                for each in mine:
                    del other.held[each]
                self.records.effects["slot forced"] += 1
            else:
                self._fail("K1", f"{where} while {other.name} has {min(mine)}")
        return was_taken

    def _lower_open(
        self, facts: GroupPartitionFacts, place: SharedPlace, share: FlowShare, offset: int
    ) -> int:
        """Return a lower offset of the same slot that is open; -1: none is."""
        slots = facts.log.slots
        slot = slots[offset]
        for lower in range(max(facts.cursor, facts.log.first), offset):
            is_open = slots[lower] == slot and lower not in share.held
            if is_open and not self._is_past(facts, place, lower):
                return lower
        return -1

    def _is_past(self, facts: GroupPartitionFacts, place: SharedPlace, offset: int) -> bool:
        return (
            offset in place.acked
            or facts.is_stored_done(offset)
            or offset in facts.letters
            or self.records.is_expired(facts, offset)
        )

    def _judge_waits(self, facts: GroupPartitionFacts, slot: int, where: str) -> None:
        if self.records.was_rolled_back or self.was_clock_set:
            return
        over = partial(self.records.needs_no_more, facts)
        for offset, left_s in self._waits.of_slot(facts, slot, self._now(), over):
            self._fail("K4", f"{where}, and waits for {offset} {left_s:.3f} s more")

    def release(self, facts: GroupPartitionFacts, slot: int) -> None:
        """Learn that a key is released: it does not wait for its time, either."""
        self._waits.release(facts, slot)

    def _judge_span(self, facts: GroupPartitionFacts, place: SharedPlace, last: int) -> None:
        low = facts.cursor
        while low < last and self._is_past(facts, place, low):
            low += 1
        if last >= low + self.max_span:
            self._fail("K6", f"{facts.name}: {last} is sent, {low} is open")

    # ---- applications ---------------------------------------------------------------------------

    def handed(
        self, facts: GroupPartitionFacts, member: str, token: Token, offset: int, idle_s: float
    ) -> None:
        """Judge what an application begins: it has it, and all below of its key is done with.

        `idle_s`: for how long it had nothing to do.
        """
        log, place = facts.log, self._place(facts.name, token[0])
        holders = [
            share
            for share in place.shares.values()
            if share.name == member and offset in share.held
        ]
        for share in holders:
            share.begun[offset] = self._now()
            self.liveness.judge_handed(facts, share, offset, idle_s)
            if self.ack_timeout_s:
                self.liveness.touch(
                    facts, [offset], self.ack_timeout_s + self.liveness.nack_s + TICK_S
                )
        if log.is_torn or token[0] != log.broker_epoch or offset >= len(log.slots):
            return  # the member is cut off, and does not know it yet
        if self.is_of_earlier_life(facts, token) or self.records.was_rolled_back:
            return
        if not any(share.end.is_open for share in holders):
            return  # its flow is lost, or it was taken by force
        slot = log.slots[offset]
        where = f"{facts.name}: {offset} of slot {slot} is begun by {member}"
        for other in place.shares.values():
            if other.name != member and other.end.is_open:
                for each in other.held:
                    is_same = each < len(log.slots) and log.slots[each] == slot
                    if is_same and not other.may_be_timed_out(each, self._times_out_at):
                        self._fail("K1", f"{where} while {other.name} has {each}")
        for lower in range(max(facts.cursor, log.first), offset):
            is_open = log.slots[lower] == slot and not facts.is_done(lower)
            if is_open and not self._is_past(facts, place, lower):
                self._fail("K2", f"{where} before {lower}")

    def is_in_flight(self, facts: GroupPartitionFacts, offset: int) -> bool:
        """Say whether a member has got the message at an offset."""
        place = self._place(facts.name, facts.log.broker_epoch)
        return any(
            share.end.is_open
            and offset in share.held
            and not share.may_be_timed_out(offset, self._times_out_at)
            for share in place.shares.values()
        )
