"""What a broker and Redis do: deliver, flush, end delays, move lanes, lose flows, crash."""

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.delivery.book_rules import BookRules, send
from tests.model.delivery.partition_state import (
    ACK,
    DELIVER,
    DONE,
    MEMBERS,
    NACK,
    NACK_STORED,
    NO_FLOW,
    OPEN,
    Book,
    Delivery,
    Faults,
    Frame,
    Partition,
    Record,
    replaced,
)
from tests.model.explorer import Violation

CREDIT = 2


class PartitionStep(NamedTuple):
    """A step of one partition. `fault`: the kind of event it is, if it is one."""

    label: str
    after: Partition
    fault: str = ""


class BrokerSteps:
    """A broker that owns one partition, and the record of that partition in Redis."""

    def __init__(self, rules: BookRules, mutant: str, *, has_tokens: bool) -> None:
        self._rules = rules
        self._mutant = mutant
        self._has_tokens = has_tokens
        """Whether rounds and pointers are kept, without which there are fewer states."""
        self._lanes = range(len(rules.offsets))

    def steps(self, partition: Partition, faults: Faults) -> Iterator[PartitionStep]:
        """Yield what can happen next."""
        if partition.record.is_gate_open or self._mutant == "gate_ignored":
            yield from self._deliver(partition)
        if partition.book.is_dirty:
            yield self._flush(partition)
        for lane in self._lanes:
            yield from self._end_delay(partition, lane)
            if faults.moves:
                yield self._move(partition, lane)
            if faults.forced and partition.book.draining[lane]:
                yield self._force(partition, lane)
            if faults.timeouts:
                yield from self._time_out(partition, lane)
        if faults.lost_flows:
            for member in MEMBERS:
                if partition.book.flows[member - 1] != NO_FLOW:
                    yield self._lose_flow(partition, member)
        if faults.crashes:
            yield PartitionStep(
                "the broker dies and another one claims", self.claimed(partition), "crashes"
            )

    def _deliver(self, partition: Partition) -> Iterator[PartitionStep]:
        """The lowest open message of a lane is sent to the owner of the lane."""
        book, record = partition.book, partition.record
        for member in MEMBERS:
            if not partition.is_connected(member) or book.holders.count(member) >= CREDIT:
                continue
            for lane in self._lanes:
                if record.owners[lane] != member or self._rules.is_blocked(partition, member, lane):
                    continue
                offset = self._rules.next_open(partition, member, lane)
                if offset is not None:
                    yield self._send(partition, member, lane, offset)

    def _send(self, partition: Partition, member: int, lane: int, offset: int) -> PartitionStep:
        """One message is sent, if its invariants allow it."""
        book = partition.book
        if partition.must_wait[lane]:
            raise Violation("D6", f"{offset} is sent before the delay of its lane is over")
        if book.counts[offset] > partition.record.counts[offset]:
            raise Violation("D5", f"{offset} is sent before its redelivery count is stored")
        is_late = self._mutant == "round_of_bind"
        token = (
            partition.record.broker_epoch,
            book.bind_rounds[member - 1] if is_late else book.round,
        )
        if token < partition.highest[lane]:
            raise Violation("D7", f"{offset} has token {token} after {partition.highest[lane]}")
        sent = Delivery(offset, book.flows[member - 1], book.copies[offset])
        after = partition.with_book(
            holders=replaced(book.holders, offset, member),
            pointers=replaced(book.pointers, self._rules.pointer_of(member, lane), offset + 1)
            if self._has_tokens
            else book.pointers,
            lent=frozenset(each for each in book.lent if each[1] != offset),
        )
        after = send(after, member, Frame(DELIVER, sent))
        after = after._replace(highest=replaced(after.highest, lane, token))
        return PartitionStep(f"{offset} is sent to member {member}", after)

    def _flush(self, partition: Partition) -> PartitionStep:
        """The whole book is written by one script, and nacks that waited for it are answered."""
        book = partition.book
        acked = tuple(holder == DONE for holder in book.holders)
        for offset, is_acked in enumerate(acked):
            if is_acked and not partition.finished[offset]:
                raise Violation("D3", f"{offset} is stored as acknowledged, and was not processed")
        is_kept = self._mutant != "delay_in_memory"
        after = partition.with_record(
            acked=acked,
            counts=book.counts,
            parked=book.parked if is_kept else partition.record.parked,
            states=book.states,
        )
        after = after.with_book(
            uncounted=(False,) * len(self._lanes), unanswered=frozenset(), is_dirty=False
        )
        must_wait = tuple(
            waits or (is_parked and not due)
            for waits, is_parked, due in zip(
                partition.must_wait, book.parked, partition.is_due, strict=True
            )
        )
        for member in sorted(book.unanswered):
            after = send(after, member, Frame(NACK_STORED))
        return PartitionStep("the book is flushed", after._replace(must_wait=must_wait))

    def _end_delay(self, partition: Partition, lane: int) -> Iterator[PartitionStep]:
        """Time passes; then the broker notices that the delay of a lane is over."""
        is_parked = partition.book.parked[lane]
        waits = is_parked or partition.record.parked[lane] or partition.must_wait[lane]
        if waits and not partition.is_due[lane]:
            after = partition._replace(
                is_due=replaced(partition.is_due, lane, True),
                must_wait=replaced(partition.must_wait, lane, False),
            )
            yield PartitionStep(f"the delay of lane {lane} is over", after)
        if is_parked and partition.is_due[lane]:
            parked = replaced(partition.book.parked, lane, False)
            unparked = partition.with_book(parked=parked, is_dirty=True)
            after = self._rules.move_pointers_back(unparked, lane)
            yield PartitionStep(f"lane {lane} is parked no longer", after)

    def _move(self, partition: Partition, lane: int) -> PartitionStep:
        """The table changes in Redis, under a new epoch; then the broker's memory follows."""
        former = partition.record.owners[lane]
        member = MEMBERS[0] if former == MEMBERS[1] else MEMBERS[1]
        after = partition.with_record(owners=replaced(partition.record.owners, lane, member))
        if self._has_tokens:
            epoch = max(partition.record.epoch, partition.book.round) + 1
            after = after.with_record(epoch=epoch).with_book(round=epoch)
        if self._rules.held(after, former, lane):
            after = after.with_book(draining=replaced(after.book.draining, lane, former))
            after = self._rules.ask_back(after, former, lane)
        after = self._rules.end_drain(after, lane)
        after = self._rules.move_pointers_back(after, lane)
        return PartitionStep(f"lane {lane} moves to member {member}", after, "moves")

    def _force(self, partition: Partition, lane: int) -> PartitionStep:
        """A drain has taken too long: the lane alone is taken from its former owner."""
        former = partition.book.draining[lane]
        after = self._rules.take_back(partition, former, lane, is_processing=True)
        after = after.with_book(draining=replaced(after.book.draining, lane, 0))
        return PartitionStep(f"lane {lane} is taken from member {former}", after, "forced")

    def _time_out(self, partition: Partition, lane: int) -> Iterator[PartitionStep]:
        """The ack of a message that its member has begun takes too long."""
        for member in MEMBERS:
            for offset in self._rules.held(partition, member, lane):
                if has_begun(partition, member, offset):
                    book = partition.book
                    after = partition.with_book(
                        holders=replaced(book.holders, offset, OPEN),
                        copies=replaced(book.copies, offset, book.copies[offset] + 1),
                        lent=book.lent | {(member, offset)},
                    )
                    after = self._rules.park(self._rules.count(after, offset, lane), lane)
                    if self._mutant != "rest_kept_after_timeout":
                        after = self._rules.ask_back(after, member, lane)
                    after = self._rules.end_drain(after, lane)
                    label = f"the ack of {offset} by member {member} times out"
                    yield PartitionStep(label, after, "timeouts")

    def _lose_flow(self, partition: Partition, member: int) -> PartitionStep:
        """A connection is lost: what the member holds is open, and its answers never come."""
        book = partition.book
        after = partition.with_book(
            flows=replaced(book.flows, member - 1, NO_FLOW),
            owed=frozenset(each for each in book.owed if each[0] != member),
            lent=frozenset(each for each in book.lent if each[0] != member),
            unanswered=book.unanswered - {member},
        ).with_link(member, down=(), up=())
        for lane in self._lanes:
            after = self._rules.take_back(after, member, lane, is_processing=False)
            if self._mutant != "drain_outlives_flow":
                after = self._rules.end_drain(after, lane)
        return PartitionStep(f"the flow of member {member} is lost", after, "lost_flows")

    def claimed(self, partition: Partition) -> Partition:
        """Return the partition with a broker that begins with the record, and cut connections.

        What is not stored as acknowledged has to be processed again, in order.
        """
        record = partition.record
        after = partition._replace(
            book=book_of(record, len(partition.links) * len(self._lanes)),
            links=tuple(link._replace(down=(), up=()) for link in partition.links),
            finished=record.acked,
        )
        if self._has_tokens:
            after = after._replace(claims=partition.claims + 1)
            by_clock = self._mutant != "epoch_without_clock"
            epoch = after.claims if by_clock else record.broker_epoch + 1
            after = after.with_record(broker_epoch=epoch)
        return after


def has_begun(partition: Partition, member: int, offset: int) -> bool:
    """Return whether a member has begun the present copy of a message that it holds."""
    link = partition.links[member - 1]
    answered = [frame.delivery for frame in link.up if frame.kind in (ACK, NACK)]
    return any(
        each is not None
        and each.offset == offset
        and each.copy == partition.book.copies[offset]
        and each.flow == link.flow
        for each in (link.processed, *answered)
    )


def book_of(record: Record, pointer_count: int) -> Book:
    """Return the book of a broker that has only read the record."""
    lane_count = len(record.owners)
    return Book(
        holders=tuple(DONE if is_acked else OPEN for is_acked in record.acked),
        counts=record.counts,
        parked=record.parked,
        states=record.states,
        copies=(0,) * len(record.acked),
        draining=(0,) * lane_count,
        uncounted=(False,) * lane_count,
        round=record.epoch,
        pointers=(0,) * pointer_count,
    )
