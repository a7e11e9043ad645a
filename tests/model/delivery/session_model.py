"""A session of a key under a lock, as a model that can be searched.

A member accepts the session, renews its lock, comes back with it over another connection or to
another broker, closes it or lets it end. Each step is atomic.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.delivery.partition_state import DONE, MEMBERS, NO_FLOW, OPEN, replaced
from tests.model.delivery.session_scenarios import SessionScenario
from tests.model.delivery.session_state import (
    ACCEPT,
    ACCEPTED,
    ACK,
    CLOSE,
    DELIVER,
    LOCK_TICKS,
    LOCKED,
    NO_LOCK,
    REFUSED,
    RENEW,
    RESUME,
    UNKNOWN,
    WRITE,
    Lock,
    Packet,
    SessionBook,
    SessionClient,
    SessionRecord,
    SessionState,
    Work,
    clocks_run,
    renumbered,
    ticked,
    unused_number,
    without_dead_packets,
)
from tests.model.explorer import Step, Violation

CREDIT = 2


class SessionStep(NamedTuple):
    """A step of the session. Events that strike are faults."""

    label: str
    after: SessionState
    is_fault: bool = False


class SessionModel:
    """The protocol under some events, with one mistake or with none."""

    liveness = "L4"

    def __init__(self, scenario: SessionScenario, mutant: str = "") -> None:
        self._scenario = scenario
        self._mutant = mutant

    def initial(self) -> SessionState:
        """Return a session that nobody has locked, and two members that are connected."""
        nothing = (False,) * self._scenario.message_count
        return SessionState(
            record=SessionRecord(nothing),
            book=SessionBook((OPEN,) * self._scenario.message_count),
            clients=(SessionClient(),) * len(MEMBERS),
            finished=nothing,
            last_flows=(1,) * len(MEMBERS),
            faults=self._scenario.faults,
            replica=SessionRecord(nothing) if self._scenario.has_old_replica else None,
        )

    def steps(self, state: SessionState) -> Iterator[Step]:
        """Yield each step that a process can take, until everything is stored as done."""
        for label, after, is_fault in self._steps(state):
            if self._mutant not in ("delivery_after_lock", "ack_without_lock"):
                after = without_dead_packets(after)
            yield Step(label, renumbered(after), is_fault)

    def _steps(self, state: SessionState) -> Iterator[SessionStep]:
        if all(state.record.acked):
            return
        if clocks_run(state):
            yield SessionStep("a tick", self._checked(ticked(state)))
        if state.book.is_dirty:
            yield self._flush(state)
        for member in MEMBERS:
            client = state.clients[member - 1]
            yield from self._client_steps(state, member, client)
            if is_connected(state, member):
                yield from self._deliver(state, member)
                if client.up and (client.up[0].kind != ACCEPT or self._is_free(state)):
                    packet, left = client.up[0], client._replace(up=client.up[1:])
                    after = self._taken(state.with_client(member, left), member, packet)
                    yield SessionStep(f"the broker takes '{packet.kind}' from {member}", after)
                if state.faults.lost_flows:
                    after = self._lose_flow(state, member).without("lost_flows")
                    yield SessionStep(f"the flow of {member} is lost", after, is_fault=True)
        if state.faults.crashes:
            after = self._claimed(state).without("crashes")
            yield SessionStep("the broker dies and another one claims", after, is_fault=True)
        if state.faults.rollbacks:
            yield self._lose_writes(state)

    def check_rest(self, state: SessionState) -> None:
        """Check L4 where nothing but faults can happen."""
        if not all(state.record.acked):
            raise Violation("L4", f"nothing can happen, and acknowledged is {state.record.acked}")

    # What the broker and Redis do.

    def _flush(self, state: SessionState) -> SessionStep:
        """Acks and the state that came with them are stored by one script."""
        acked = tuple(holder == DONE for holder in state.book.holders)
        if any(a and not f for a, f in zip(acked, state.finished, strict=True)):
            raise Violation("L3", f"{acked} is stored, and processed is {state.finished}")
        after = state.with_record(acked=acked, state=state.book.state)
        after = after._replace(is_written=state.is_written or state.book.state % 2 == 1)
        return SessionStep("the book is flushed", after.with_book(is_dirty=False))

    def _deliver(self, state: SessionState, member: int) -> Iterator[SessionStep]:
        """The lowest open message is sent to the holder of a lock that has not ended."""
        lock, book = state.record.lock, state.book
        if lock.holder != member or not lock.left or book.bound != lock.number:
            return
        if OPEN in book.holders and book.holders.count(member) < CREDIT:
            offset = book.holders.index(OPEN)
            after = state.with_book(holders=replaced(book.holders, offset, member))
            sent = Packet(DELIVER, lock.number, offset=offset, flow=book.flows[member - 1])
            yield SessionStep(f"{offset} is sent to {member}", sent_down(after, member, sent))

    def _taken(self, state: SessionState, member: int, packet: Packet) -> SessionState:
        """Return the state after the broker has taken a packet."""
        lock, book = state.record.lock, state.book
        has_lock = lock.holder == member and lock.number == packet.number and lock.left > 0
        match packet.kind:
            case "accept":
                return self._accept(state, member)
            case "ack":
                return self._take_ack(state, member, packet, has_lock=has_lock)
            case "write state":
                return self._take_write(state, member, packet, has_lock=has_lock)
            case "close" if has_lock:
                after = state.with_record(lock=Lock(number=lock.number))
                if self._mutant == "close_acknowledges":
                    return acknowledged(after.with_book(bound=NO_LOCK), member)
                return opened(after.with_book(bound=NO_LOCK), member)
            case "close":
                return state
            case _ if not has_lock:
                return sent_down(state, member, Packet(REFUSED))
            case "resume":
                answer = Packet(LOCKED, lock.number, lock.left, state=book.state)
                return sent_down(state.with_book(bound=lock.number), member, answer)
        if self._mutant != "renewal_not_stored":
            state = state.with_record(lock=lock._replace(left=LOCK_TICKS))
        return sent_down(state, member, Packet(LOCKED, lock.number, LOCK_TICKS))

    def _is_free(self, state: SessionState) -> bool:
        """Return whether the session can be given. If not, requests for it wait at the broker."""
        lock = state.record.lock
        if self._mutant == "lock_ends_by_close" and lock.holder:
            return False
        return not lock.left and not state.book.quiet

    def _accept(self, state: SessionState, member: int) -> SessionState:
        """A session that is free is given; what the last holder has of it is taken back."""
        lock = state.record.lock
        if lock.holder and self._mutant != "messages_outlive_lock":
            state = opened(state, lock.holder)
        number = unused_number(state)
        state = state.with_record(lock=Lock(member, number, LOCK_TICKS)).with_book(bound=number)
        is_late = self._mutant == "accept_reads_record"
        read = state.record.state if is_late else state.book.state
        return sent_down(state, member, Packet(ACCEPTED, number, LOCK_TICKS, state=read))

    def _take_ack(
        self, state: SessionState, member: int, packet: Packet, *, has_lock: bool
    ) -> SessionState:
        """An ack counts under the lock and the flow under which its message was sent."""
        book = state.book
        is_current = packet.flow == book.flows[member - 1]
        has_lock = has_lock or self._mutant == "ack_without_lock"
        is_current = is_current or self._mutant == "ack_of_any_flow"
        if not has_lock or not is_current or book.holders[packet.offset] != member:
            return state
        holders = replaced(book.holders, packet.offset, DONE)
        return state.with_book(holders=holders, state=packet.state, is_dirty=True)

    def _take_write(
        self, state: SessionState, member: int, packet: Packet, *, has_lock: bool
    ) -> SessionState:
        """A write of the state counts as an ack does, and is stored with the book."""
        if not has_lock or packet.flow != state.book.flows[member - 1]:
            return state
        if self._mutant == "write_past_book":
            return state.with_record(state=packet.state)._replace(is_written=True)
        return state.with_book(state=packet.state, is_dirty=True)

    def _lose_flow(self, state: SessionState, member: int) -> SessionState:
        """A connection is lost: what its member holds is open. The lock stays until its time."""
        lock, book = state.record.lock, state.book
        state = state.with_book(flows=replaced(book.flows, member - 1, NO_FLOW))
        if lock.holder == member:
            state = state.with_book(bound=NO_LOCK)
            if self._mutant == "lock_ends_with_flow":
                state = state.with_record(lock=Lock(number=lock.number))
        client = state.clients[member - 1]._replace(down=(), up=())
        return opened(state.with_client(member, client), member)

    def _claimed(self, state: SessionState) -> SessionState:
        """Another broker begins with the record. Members come back to it with their locks."""
        record = state.record
        if self._mutant == "lock_in_memory":
            record = record._replace(lock=Lock(number=record.lock.number))
        book = SessionBook(
            holders=tuple(DONE if is_acked else OPEN for is_acked in record.acked),
            state=record.state,
            flows=(NO_FLOW,) * len(MEMBERS),
            quiet=state.book.quiet,
        )
        clients = tuple(client._replace(down=(), up=()) for client in state.clients)
        return state._replace(record=record, book=book, clients=clients)

    def _lose_writes(self, state: SessionState) -> SessionStep:
        """A replica stops following; later it takes the place of the Redis that it followed.

        It may not have a lock that was given: none is given before such a lock has ended.
        """
        if state.replica is None:
            kept = state._replace(replica=state.record)
            return SessionStep("a replica stops following", kept, is_fault=True)
        after = self._claimed(state._replace(record=state.replica, replica=None))
        after = after._replace(is_written=state.replica.state % 2 == 1)
        if self._mutant != "locks_after_lost_writes":
            after = after.with_book(quiet=LOCK_TICKS)
        return SessionStep("Redis loses its last writes", after.without("rollbacks"), is_fault=True)

    # What clients and applications do.

    def _client_steps(
        self, state: SessionState, member: int, client: SessionClient
    ) -> Iterator[SessionStep]:
        """Yield what a client, its connection and its application can do."""
        bound_flow = state.book.flows[member - 1]
        if client.flow and client.flow != bound_flow:
            alone = client._replace(
                flow=NO_FLOW, buffer=(), down=(), up=(), has_asked=False, is_bound=False
            )
            yield SessionStep(f"{member} notices its lost flow", state.with_client(member, alone))
        if not client.flow and not bound_flow:
            yield self._bind(state, member, client)
        if client.flow:
            if not client.has_asked:
                yield from self._ask(state, member, client)
            if client.down:
                after = state.with_client(member, self._received(client))
                yield SessionStep(f"{member} takes '{client.down[0].kind}'", self._checked(after))
            if client.buffer and client.is_bound and not client.work:
                yield self._begin(state, member, client)
        if client.work:
            yield self._finish(state, member, client, client.work)
            if state.faults.writes and client.is_bound and not client.work.is_late:
                yield self._write(state, member, client, client.work)

    def _bind(self, state: SessionState, member: int, client: SessionClient) -> SessionStep:
        """A client without a flow opens one."""
        flow = state.last_flows[member - 1] + 1
        after = state.with_book(flows=replaced(state.book.flows, member - 1, flow))
        after = after.with_client(member, client._replace(flow=flow))
        flows = replaced(state.last_flows, member - 1, flow)
        return SessionStep(f"{member} binds", after._replace(last_flows=flows))

    def _ask(
        self, state: SessionState, member: int, client: SessionClient
    ) -> Iterator[SessionStep]:
        """A client without a lock asks for one; with one it names it, renews it or closes it."""
        if not client.number:
            request = Packet(ACCEPT)
        elif not client.is_bound:
            request = Packet(RESUME, client.number)
        else:
            may_close = not client.work or self._mutant == "close_while_processing"
            if state.faults.closes and may_close:
                closed = client._replace(number=NO_LOCK, left=0, state=UNKNOWN, is_bound=False)
                closed = closed._replace(buffer=())
                closed = closed._replace(up=(*client.up, Packet(CLOSE, client.number)))
                after = state.with_client(member, closed).without("closes")
                yield SessionStep(f"{member} closes the session", after, is_fault=True)
            if client.left == LOCK_TICKS or not state.faults.renewals:
                return
            request = Packet(RENEW, client.number)
            state = state.without("renewals")
        asked = client._replace(has_asked=True, up=(*client.up, request))
        yield SessionStep(f"{member} sends '{request.kind}'", state.with_client(member, asked))

    def _received(self, client: SessionClient) -> SessionClient:
        """Return a client after the next packet from its broker."""
        packet, client = client.down[0], client._replace(down=client.down[1:])
        if packet.kind == DELIVER:
            if client.number or self._mutant == "delivery_after_lock":
                client = client._replace(buffer=(*client.buffer, packet))
            return client
        client = client._replace(has_asked=False)
        left = LOCK_TICKS if self._mutant == "lock_counted_from_answer" else packet.left
        if packet.kind == REFUSED or not left:
            return client.without_lock()
        is_known = packet.kind == ACCEPTED or client.number == packet.number
        if not is_known and self._mutant != "lock_taken_up_again":
            return client  # It has ended by the client's clock, and what came with it is dropped.
        is_read = packet.state >= 0 and not (
            self._mutant == "state_kept" and client.number == packet.number
        )
        return client._replace(
            number=packet.number,
            left=left,
            is_bound=True,
            state=packet.state if is_read else client.state,
        )

    def _begin(self, state: SessionState, member: int, client: SessionClient) -> SessionStep:
        """The application is given a message."""
        message = client.buffer[0]
        other = state.clients[2 - member]
        if other.work and not other.work.is_late:
            raise Violation("L1", f"{member} begins {message.offset} beside {other.work.message}")
        is_held = state.book.holders[message.offset] == member
        if message.flow == state.book.flows[member - 1] and not is_held:
            raise Violation("L1", f"{member} begins {message.offset} and does not hold it")
        if not all(state.finished[: message.offset]):
            raise Violation("L2", f"{member} begins {message.offset}, processed: {state.finished}")
        if client.state // 2 != message.offset or client.state % 2 < state.is_written:
            raise Violation("L5", f"{member} begins {message.offset} with state {client.state}")
        begun = client._replace(buffer=client.buffer[1:], work=Work(message, client.state))
        return SessionStep(f"{member} begins {message.offset}", state.with_client(member, begun))

    def _write(
        self, state: SessionState, member: int, client: SessionClient, work: Work
    ) -> SessionStep:
        """The application writes the state, and its ack will carry what it has written."""
        written = work.state + 1
        write = work.message._replace(kind=WRITE, flow=client.flow, state=written)
        after = client._replace(work=work._replace(state=written), up=(*client.up, write))
        after = after._replace(state=written)
        left = state.with_client(member, after).without("writes")
        return SessionStep(f"{member} writes the state", left, is_fault=True)

    def _finish(
        self, state: SessionState, member: int, client: SessionClient, work: Work
    ) -> SessionStep:
        """The application finishes its message, and acknowledges it with the next state."""
        message = work.message
        ended = client._replace(work=None)
        if client.flow:
            ack = message._replace(kind=ACK, state=work.state + 2)
            ended = ended._replace(up=(*client.up, ack))
        if message.number == client.number and message.flow == client.flow:
            ended = ended._replace(state=work.state + 2)
        finished = replaced(state.finished, message.offset, True)
        after = state.with_client(member, ended)._replace(finished=finished)
        return SessionStep(f"{member} finishes {message.offset}", after)

    def _checked(self, state: SessionState) -> SessionState:
        """Return the state, in which at most one client has a lock by its own clock."""
        if all(client.number and client.left for client in state.clients):
            numbers = [client.number for client in state.clients]
            raise Violation("L1", f"both members have a lock, with the numbers {numbers}")
        return state


def is_connected(state: SessionState, member: int) -> bool:
    """Return whether a member has a flow, and the broker knows the same one."""
    flow = state.book.flows[member - 1]
    return flow != NO_FLOW and state.clients[member - 1].flow == flow


def sent_down(state: SessionState, member: int, packet: Packet) -> SessionState:
    """Return the state with a packet on its way to a member."""
    client = state.clients[member - 1]
    return state.with_client(member, client._replace(down=(*client.down, packet)))


def opened(state: SessionState, member: int) -> SessionState:
    """Return the state in which what a member held is open."""
    holders = tuple(OPEN if holder == member else holder for holder in state.book.holders)
    return state.with_book(holders=holders)


def acknowledged(state: SessionState, member: int) -> SessionState:
    """Return the state in which what a member held is acknowledged, which only a mistake does."""
    holders = tuple(DONE if holder == member else holder for holder in state.book.holders)
    return state.with_book(holders=holders, is_dirty=True)
