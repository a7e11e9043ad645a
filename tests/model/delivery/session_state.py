"""The state of a modelled session: its lock in Redis, a broker's book, two clients, the time left.

One session has one or two messages in one partition. Time passes in ticks, and a lock lasts
LOCK_TICKS of them. Each clock says how much is left of a lock, and all run at the same speed.
"""

from typing import Any, NamedTuple

from tests.model.delivery.partition_state import MEMBERS, replaced

LOCK_TICKS = 2
NO_LOCK = 0
UNKNOWN = -1

# What members send, and what the broker sends. An ack, a close and a write are not answered.
ACCEPT, RESUME, RENEW, CLOSE, ACK = "accept", "resume", "renew", "close", "ack"
WRITE = "write state"
ACCEPTED, LOCKED, REFUSED, DELIVER = "accepted", "locked", "refused", "deliver"


class Lock(NamedTuple):
    """Who has the session, and for how many more ticks."""

    holder: int = 0
    number: int = NO_LOCK
    left: int = 0


class SessionRecord(NamedTuple):
    """What Redis has of the session."""

    acked: tuple[bool, ...]
    lock: Lock = Lock()
    state: int = 0
    """The state of the session, as the application stored it.

    Twice the number of messages that it includes; one more if the application has also written it
    without an ack.
    """


class SessionBook(NamedTuple):
    """What the broker has in memory."""

    holders: tuple[int, ...]
    state: int = 0
    flows: tuple[int, ...] = (1,) * len(MEMBERS)
    bound: int = NO_LOCK
    """The lock whose holder has named it over the flow that it has now."""
    is_dirty: bool = False
    quiet: int = 0
    """For how many ticks no lock is given, because Redis may have forgotten one."""


class Packet(NamedTuple):
    """What a connection carries: a request, an answer, a message or an ack."""

    kind: str
    number: int = NO_LOCK
    left: int = 0
    offset: int = UNKNOWN
    flow: int = 0
    state: int = UNKNOWN


class Work(NamedTuple):
    """A message that an application processes."""

    message: Packet
    state: int
    """The state that it has read."""
    is_late: bool = False
    """Whether the member has noticed since that its lock has ended."""


class SessionClient(NamedTuple):
    """A member's client, and both directions of its connection."""

    flow: int = 1
    number: int = NO_LOCK
    left: int = 0
    """What is left of its lock by its clock."""
    state: int = UNKNOWN
    has_asked: bool = False
    """Whether a request is not answered yet."""
    is_bound: bool = False
    """Whether the broker knows its lock under this flow."""
    buffer: tuple[Packet, ...] = ()
    work: Work | None = None
    down: tuple[Packet, ...] = ()
    up: tuple[Packet, ...] = ()

    def without_lock(self) -> "SessionClient":
        """Return the client after it has noticed that its lock has ended."""
        work = self.work._replace(is_late=True) if self.work else None
        return self._replace(
            number=NO_LOCK, left=0, state=UNKNOWN, is_bound=False, buffer=(), work=work
        )


class SessionFaults(NamedTuple):
    """How many events of each kind may still strike. Each is a fault: none has to happen."""

    renewals: int = 0
    closes: int = 0
    lost_flows: int = 0
    crashes: int = 0
    writes: int = 0
    """The application writes the state while it processes a message."""
    rollbacks: int = 0


class SessionState(NamedTuple):
    """Everything."""

    record: SessionRecord
    book: SessionBook
    clients: tuple[SessionClient, ...]
    finished: tuple[bool, ...]
    last_flows: tuple[int, ...]
    faults: SessionFaults
    replica: SessionRecord | None = None
    is_written: bool = False
    """Whether a write of the state was confirmed, which is after it was stored."""

    def with_client(self, member: int, client: SessionClient) -> "SessionState":
        """Return the state with a member's client changed."""
        return self._replace(clients=replaced(self.clients, member - 1, client))

    def with_book(self, **changes: Any) -> "SessionState":
        """Return the state with the book changed."""
        return self._replace(book=self.book._replace(**changes))

    def with_record(self, **changes: Any) -> "SessionState":
        """Return the state with the record changed."""
        return self._replace(record=self.record._replace(**changes))

    def without(self, fault: str) -> "SessionState":
        """Return the state after one event of a kind."""
        left = getattr(self.faults, fault) - 1
        return self._replace(faults=self.faults._replace(**{fault: left}))


def ticked(state: SessionState) -> SessionState:
    """Return the state after one tick of all clocks."""
    record, replica = state.record, state.replica
    return state._replace(
        record=record._replace(lock=_shorter(record.lock)),
        replica=replica._replace(lock=_shorter(replica.lock)) if replica else None,
        book=state.book._replace(quiet=max(0, state.book.quiet - 1)),
        clients=tuple(map(_ticked_client, state.clients)),
    )


def _shorter(lock: Lock) -> Lock:
    return lock._replace(left=max(0, lock.left - 1))


def _ticked_client(client: SessionClient) -> SessionClient:
    """A client counts a lock from the moment at which it asked for it."""
    down = tuple(each._replace(left=max(0, each.left - 1)) for each in client.down)
    client = client._replace(down=down)
    if client.left > 1:
        return client._replace(left=client.left - 1)
    return client.without_lock() if client.left else client


def clocks_run(state: SessionState) -> bool:
    """Return whether a tick changes anything."""
    return bool(
        state.record.lock.left
        or state.book.quiet
        or (state.replica and state.replica.lock.left)
        or any(client.left or any(p.left for p in client.down) for client in state.clients)
    )


def unused_number(state: SessionState) -> int:
    """Return a lock number that nothing names: real ones come from the clock, and never repeat."""
    return len(_names(state)) + 1


def without_dead_packets(state: SessionState) -> SessionState:
    """Return the state without packets of ended locks, which their receivers drop."""
    present = {state.record.lock.number, state.replica.lock.number if state.replica else NO_LOCK}
    clients = []
    for client in state.clients:
        known = {client.number} | {each.number for each in client.down if each.kind != DELIVER}
        down = tuple(p for p in client.down if p.kind != DELIVER or p.number in known - {NO_LOCK})
        up = tuple(p for p in client.up if p.kind not in (ACK, CLOSE, WRITE) or p.number in present)
        if down != client.down or up != client.up:
            client = client._replace(down=down, up=up)
        clients.append(client)
    return state._replace(clients=tuple(clients))


def renumbered(state: SessionState) -> SessionState:
    """Return the state with its lock numbers in the order in which it names them.

    Only whether two numbers are equal makes a difference.
    """
    new = {number: index for index, number in enumerate(_names(state), 1)}
    if all(number == index for number, index in new.items()):
        return state
    new[NO_LOCK] = NO_LOCK

    def packets(old: tuple[Packet, ...]) -> tuple[Packet, ...]:
        return tuple(each._replace(number=new[each.number]) for each in old)

    def record(old: SessionRecord) -> SessionRecord:
        return old._replace(lock=old.lock._replace(number=new[old.lock.number]))

    clients = tuple(
        client._replace(
            number=new[client.number],
            buffer=packets(client.buffer),
            down=packets(client.down),
            up=packets(client.up),
            work=client.work._replace(message=packets((client.work.message,))[0])
            if client.work
            else None,
        )
        for client in state.clients
    )
    return state._replace(
        record=record(state.record),
        replica=record(state.replica) if state.replica else None,
        book=state.book._replace(bound=new[state.book.bound]),
        clients=clients,
    )


def _names(state: SessionState) -> list[int]:
    """Return the lock numbers that a state names, each once, that of the record first."""
    named = {state.record.lock.number: None, state.book.bound: None}
    if state.replica:
        named[state.replica.lock.number] = None
    for client in state.clients:
        named[client.number] = None
        if client.work:
            named[client.work.message.number] = None
        for each in (*client.buffer, *client.down, *client.up):
            named[each.number] = None
    named.pop(NO_LOCK, None)
    return list(named)
