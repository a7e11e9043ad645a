"""What members do: take and send frames, and have an application that finishes or fails."""

from collections.abc import Iterator

from tests.model.delivery.book_rules import BookRules, send
from tests.model.delivery.broker_steps import PartitionStep
from tests.model.delivery.partition_state import (
    ACK,
    DELIVER,
    DONE,
    MEMBERS,
    NACK,
    NACK_STORED,
    NO_FLOW,
    OPEN,
    RETURNED,
    Delivery,
    Faults,
    Frame,
    Link,
    Partition,
    State,
    replaced,
)
from tests.model.explorer import Violation


class MemberSteps:
    """Two members and their connections to the broker of one partition."""

    def __init__(
        self, index: int, rules: list[BookRules], mutant: str, *, has_tokens: bool, has_states: bool
    ) -> None:
        self._index = index
        self._rules = rules[index]
        self._all_rules = rules
        self._mutant = mutant
        self._has_tokens = has_tokens
        self._has_states = has_states
        self._below = [
            [(before, o) for before in range(index) for o in of_lane(rules[before], lane)]
            for lane in range(len(self._rules.offsets))
        ]
        """Messages of each lane in older partitions, with the partition."""

    def steps(self, state: State) -> Iterator[PartitionStep]:
        """Yield what members can do, and what the broker does with their frames."""
        partition = state.partitions[self._index]
        for member in MEMBERS:
            link = partition.links[member - 1]
            if link.up and partition.is_connected(member):
                yield self._broker_takes(partition, member, link)
            if link.down and link.flow:
                yield self._member_takes(partition, member, link)
            if link.buffer and link.flow and not link.processed and not link.waits_for_nack:
                yield self._begin(state, partition, member, link)
            if link.processed:
                yield from self._end(partition, member, link, state.faults)
            bound = partition.book.flows[member - 1]
            if link.flow and link.flow != bound:
                lost = partition.with_link(
                    member, flow=NO_FLOW, buffer=(), waits_for_nack=False, down=(), up=()
                )
                yield PartitionStep(f"member {member} notices that its flow is lost", lost)
            if not link.flow and not bound:
                yield self._bind(partition, member)

    def _bind(self, partition: Partition, member: int) -> PartitionStep:
        """A member without a flow opens one."""
        flow = partition.last_flows[member - 1] + 1
        book = partition.book
        after = partition.with_book(flows=replaced(book.flows, member - 1, flow))
        if self._has_tokens:
            after = after.with_book(
                round=book.round + 1,
                bind_rounds=replaced(book.bind_rounds, member - 1, book.round + 1),
            )
        after = after.with_link(member, flow=flow)
        last_flows = replaced(partition.last_flows, member - 1, flow)
        return PartitionStep(f"member {member} binds", after._replace(last_flows=last_flows))

    def _broker_takes(self, partition: Partition, member: int, link: Link) -> PartitionStep:
        """The broker takes the next frame of a member."""
        frame, after = link.up[0], partition.with_link(member, up=link.up[1:])
        what = f"lane {frame.lane}" if frame.delivery is None else f"{frame.delivery.offset}"
        label = f"the broker takes '{frame.kind} {what}' from member {member}"
        return PartitionStep(label, self._taken(after, member, frame))

    def _taken(self, partition: Partition, member: int, frame: Frame) -> Partition:
        """Return the partition after the broker has taken a frame."""
        if frame.delivery is None:
            return self._take_returned(partition, member, frame)
        take = self._take_ack if frame.kind == ACK else self._take_nack
        return take(partition, member, frame.delivery)

    def _take_ack(self, partition: Partition, member: int, acked: Delivery) -> Partition:
        """An ack counts if the member holds this copy, or has it on loan and nobody is before it.

        On loan: the message is open, and all lower ones of its lane are acknowledged.
        """
        book, offset = partition.book, acked.offset
        lane = self._rules.lanes[offset]
        is_next = self._mutant == "loan_beside_lower" or all(
            book.holders[each] == DONE for each in self._rules.offsets[lane] if each < offset
        )
        counts = self._is_own(partition, member, acked) or (
            book.holders[offset] == OPEN and (member, offset) in book.lent and is_next
        )
        if self._mutant == "ack_without_holder":
            counts = book.holders[offset] != DONE
        if not counts:
            if self._mutant == "state_not_fenced":
                states = replaced(book.states, lane, acked.state + 1)
                return partition.with_book(states=states, is_dirty=True)
            return partition
        holders = replaced(book.holders, offset, DONE)
        if self._mutant == "cumulative_ack":
            holders = (*[DONE] * offset, *holders[offset:])
        after = partition.with_book(
            holders=holders,
            lent=book.lent - {(member, offset)},
            is_dirty=True,
        )
        if self._has_states:
            states = replaced(book.states, lane, acked.state + 1)
            after = after.with_book(states=states)
            if self._mutant == "state_before_ack":
                after = after.with_record(states=states)
        return self._rules.end_drain(after, lane)

    def _take_nack(self, partition: Partition, member: int, nacked: Delivery) -> Partition:
        """A nack takes the message back, parks its lane, and asks for the rest of the lane."""
        book, offset = partition.book, nacked.offset
        if not self._is_own(partition, member, nacked):
            refused = partition.with_book(lent=book.lent - {(member, offset)})
            return send(refused, member, Frame(NACK_STORED))
        lane = self._rules.lanes[offset]
        after = partition.with_book(
            holders=replaced(book.holders, offset, OPEN), unanswered=book.unanswered | {member}
        )
        after = self._rules.park(self._rules.count(after, offset, lane), lane)
        after = self._rules.end_drain(after, lane)
        if self._mutant == "rest_kept_after_nack":
            return after
        return self._rules.ask_back(after, member, lane)

    def _take_returned(self, partition: Partition, member: int, frame: Frame) -> Partition:
        """What a member gives back is open, and counts for nothing."""
        holders = partition.book.holders
        for each in frame.returned:
            if self._is_own(partition, member, each):
                holders = replaced(holders, each.offset, OPEN)
        owed = partition.book.owed - {(member, frame.lane)}
        after = partition.with_book(holders=holders, owed=owed)
        after = self._rules.end_drain(after, frame.lane)
        return self._rules.move_pointers_back(after, frame.lane)

    def _is_own(self, partition: Partition, member: int, copy: Delivery) -> bool:
        """Return whether the broker takes a member for the holder of this copy of a message."""
        if self._mutant == "ack_of_any_copy":
            copy = copy._replace(copy=partition.book.copies[copy.offset])
        return is_held(partition, member, copy)

    def _member_takes(self, partition: Partition, member: int, link: Link) -> PartitionStep:
        """A client takes the next frame."""
        frame = link.down[0]
        after = partition.with_link(member, down=link.down[1:])
        if frame.kind == DELIVER:
            assert frame.delivery is not None
            received = after.with_link(member, buffer=(*link.buffer, frame.delivery))
            return PartitionStep(f"member {member} receives {frame.delivery.offset}", received)
        if frame.kind == NACK_STORED:
            answered = after.with_link(member, waits_for_nack=False)
            return PartitionStep(f"the nack of member {member} is answered", answered)
        of_lane = [each for each in link.buffer if self._rules.lanes[each.offset] == frame.lane]
        kept = tuple(each for each in link.buffer if each not in of_lane)
        if self._mutant == "returned_and_kept":
            kept = link.buffer
        answer = Frame(RETURNED, lane=frame.lane, returned=tuple(of_lane))
        returned = after.with_link(member, buffer=kept, up=(*link.up, answer))
        return PartitionStep(f"member {member} gives back lane {frame.lane}", returned)

    def _begin(self, state: State, partition: Partition, member: int, link: Link) -> PartitionStep:
        """The application is given the next message, and reads the state of its key."""
        begun = link.buffer[0]
        lane = self._rules.lanes[begun.offset]
        if self._has_states:
            begun = begun._replace(state=self._read_state(partition, member, lane))
        if begun.flow == partition.book.flows[member - 1]:
            self._check_begin(state, partition, member, begun)
        after = partition.with_link(member, buffer=link.buffer[1:], processed=begun)
        return PartitionStep(f"member {member} begins {begun.offset}", after)

    def _read_state(self, partition: Partition, member: int, lane: int) -> int:
        """The broker answers a read after it has taken what the member sent before it."""
        is_ordered = self._mutant != "state_read_past_acks" and partition.is_connected(member)
        while is_ordered and (up := partition.links[member - 1].up):
            partition = self._taken(partition.with_link(member, up=up[1:]), member, up[0])
        return partition.book.states[lane]

    def _check_begin(
        self, state: State, partition: Partition, member: int, begun: Delivery
    ) -> None:
        """Check a message that is given to an application under a flow that lives."""
        offset, lane = begun.offset, self._rules.lanes[begun.offset]
        if not is_held(partition, member, begun):
            if begun.copy < partition.book.copies[offset]:
                return  # It was taken by force: its ack is refused, and its token is the older one.
            raise Violation("D1", f"member {member} begins {offset} and does not hold it")
        here = [(self._index, each) for each in self._rules.offsets[lane] if each < offset]
        lower = self._below[lane] + here
        for index, each in lower:
            if not state.partitions[index].finished[each]:
                raise Violation("D2", f"member {member} begins {offset} before {index}.{each}")
        for each in self._rules.offsets[lane]:
            if each > offset and partition.book.holders[each] == DONE:
                raise Violation("D2", f"member {member} begins {offset} after the ack of {each}")
        for index, other in enumerate(state.partitions[: self._index + 1]):
            for working in MEMBERS:
                at_work = other.links[working - 1].processed
                if (
                    working != member
                    and at_work is not None
                    and self._all_rules[index].lanes[at_work.offset] == lane
                    and is_held(other, working, at_work)
                ):
                    raise Violation("D1", f"{member} begins {offset}, {working} is at {at_work}")
        if self._has_states and begun.state != len(lower):
            raise Violation(
                "D8", f"{offset} begins with a state of {begun.state} messages, not {len(lower)}"
            )

    def _end(
        self, partition: Partition, member: int, link: Link, faults: Faults
    ) -> Iterator[PartitionStep]:
        """The application finishes its message, or fails and gives it back."""
        ended = link.processed
        assert ended is not None
        up = (*link.up, Frame(ACK, ended)) if link.flow else link.up
        after = partition.with_link(member, processed=None, up=up)
        finished = replaced(partition.finished, ended.offset, True)
        label = f"member {member} finishes {ended.offset}"
        yield PartitionStep(label, after._replace(finished=finished))
        if faults.nacks and link.flow:
            up = (*link.up, Frame(NACK, ended))
            after = partition.with_link(member, processed=None, waits_for_nack=True, up=up)
            yield PartitionStep(f"member {member} fails at {ended.offset}", after, "nacks")


def is_held(partition: Partition, member: int, copy: Delivery) -> bool:
    """Return whether the book says that a member holds this very copy of a message."""
    book = partition.book
    return (
        copy.flow == book.flows[member - 1]
        and book.holders[copy.offset] == member
        and copy.copy == book.copies[copy.offset]
    )


def of_lane(rules: BookRules, lane: int) -> list[int]:
    """Return the messages of a lane, of which a partition may have none."""
    return rules.offsets[lane] if lane < len(rules.offsets) else []
