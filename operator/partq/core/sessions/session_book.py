"""The book of a group in one partition whose members have sessions, each locked by one of them.

A lane is a session: all messages of a key, or a single message without one. Its owner is the share
of the member that has it locked. Batches are read here once each, by `read`, as they come: shares
are sent what is noted for them, and look at no batch in turn.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from partq.core.cursor.book import SlottedBatch
from partq.core.cursor.progress import Range
from partq.core.cursor.windows import Window
from partq.core.lanes.lane_book import DEFAULT_MAX_PARKED, DEFAULT_MAX_SPAN
from partq.core.lanes.lane_sender import ParkedLane
from partq.core.lanes.parked_lanes import ALL_LANES
from partq.core.lanes.shared_book import ShareBook, SharedBook
from partq.core.lanes.span import OPEN
from partq.core.model import SLOT_COUNT, Cause
from partq.core.ranges import Ranges
from partq.core.sessions.interned_sessions import MAX_INTERNED, InternedSessions

_NOWHERE: Final = 2**62
"""In the place of a share's position: it takes nothing in turn."""
_FEW_SESSIONS: Final = 4096
"""So many lanes are kept without a look at which of them are needed."""


@dataclass(frozen=True, slots=True)
class LanedBatch:
    """A batch whose lanes are those of sessions."""

    first: int
    count: int
    slots: Sequence[int]


class OpenSession(NamedTuple):
    """A session that has messages which are not done."""

    session: str
    messages: int
    offset: int
    """The lowest of them."""
    until: float
    """When it may be sent again, on the caller's clock; 0: nothing was given back."""


class SessionShareBook(ShareBook):
    """The book of one lock: what its member has of the session, and is sent."""

    __slots__ = ()

    @property
    def position(self) -> int:
        """It takes nothing in turn."""
        return _NOWHERE

    @property
    def sent_end(self) -> int:
        """What may have been processed before lies below."""
        return max(self._record.delivered, self._span.marked_end, self.cursor)

    @property
    def stands_still(self) -> str:
        """Nothing: the book of the partition says it."""
        return ""

    @property
    def _sent_top(self) -> int:
        """All that the member has was read below."""
        return max(self._span.read_end, self.cursor)

    def take(self, batch: SlottedBatch, stop: int, credit: int) -> Window | None:
        """Take nothing: `take_again` has all that the share is sent."""
        del batch, stop, credit
        return None

    def send(self, offsets: Iterable[int]) -> None:
        """Note what is to be sent."""
        self._again.add(offsets)

    def not_begun(self, begun: Iterable[Range]) -> list[Range]:
        """Return all that the member has but `begun`."""
        kept = Ranges(sorted(begun))
        held = self.delivered(self.cursor, self._span.read_end)
        return [part for each in held for part in kept.outside(*each)]


class SessionBook(SharedBook):
    """The book of a partition whose sessions are locked one by one."""

    __slots__ = ("_holders", "_restored", "_sessions", "_table")

    def __init__(
        self,
        cursor: int,
        acked: Iterable[Range] = (),
        redeliveries: Mapping[int, int] | None = None,
        *,
        parked: Mapping[int, float] | None = None,
        quarantined: Collection[int] = (),
        max_span: int = DEFAULT_MAX_SPAN,
        max_parked: int = DEFAULT_MAX_PARKED,
    ) -> None:
        """Start from a record, in which slots stand for lanes; nobody has a session."""
        super().__init__(
            cursor,
            acked,
            redeliveries,
            parked=parked,
            quarantined=quarantined,
            max_span=max_span,
            max_parked=max_parked,
        )
        self._table = bytearray(SLOT_COUNT)
        self._span.assign(self._table)
        self._sessions = InternedSessions()
        self._holders: dict[str, int] = {}
        """Session that is locked → the share that has it."""
        self._restored = set(parked or ())
        """Slots that wait since the record was read: it does not say which of their sessions."""

    # ---- reading --------------------------------------------------------------------------------

    @property
    def read_end(self) -> int:
        """The batch that has this offset comes next."""
        return max(self._span.read_end, self.cursor)

    @property
    def may_read(self) -> bool:
        """Whether a further batch may be read: neither span nor lanes are used up."""
        if len(self._sessions) >= MAX_INTERNED:
            self._forget_sessions()
        return self._is_in_span and len(self._sessions) < MAX_INTERNED

    @property
    def _is_in_span(self) -> bool:
        if self.read_end < self.cursor + self.max_span:
            return True
        self._record.waits_for_span = True
        return False

    def read(self, batch: SlottedBatch, sessions: Sequence[str]) -> None:
        """Learn the messages of a batch, which holds `read_end`, and of which session each is."""
        stop = batch.first + batch.count
        start = self.read_end
        if start >= stop:
            return
        if len(self._sessions) >= _FEW_SESSIONS:
            self._forget_sessions()
        waiting, lanes = self._blocked.parked, list[int]()
        for session, slot in zip(sessions, batch.slots, strict=True):
            lane = self._sessions.lane(session)
            if lane is None:
                lane = self._sessions.intern(session, slot, self._blocked.lanes)
                if lane != slot and slot in self._restored and slot in waiting:
                    self._blocked.park(lane, waiting.until[slot])
                if (share := self._holders.get(session)) is not None:
                    self._table[lane] = share
            lanes.append(lane)
        self._span.read(LanedBatch(batch.first, batch.count, lanes))
        if self._record.exhausted:
            self._hold_read()
        if self._record.doomed_unread:
            unread, self._record.doomed_unread = self._record.doomed_unread, set()
            self.doom(unread)
        self._note_passed(start, stop)
        for share in {self._table[lane] for lane in lanes} - {0}:
            self._hand(share, start, stop)
        self._record.has_news = True

    def _hand(self, share: int, start: int, stop: int) -> None:
        book = self._shares.get(share)
        if isinstance(book, SessionShareBook):
            lanes = [
                lane
                for session, number in self._holders.items()
                if number == share and (lane := self._sessions.lane(session)) is not None
            ]
            if lanes:
                book.send(self._span.of_lanes(lanes, OPEN, start, stop))

    def _forget_sessions(self) -> None:
        span = self._span
        needed = span.lanes_undone(self.cursor).keys() | self._blocked.lanes
        held = (self._sessions.lane(session) for session in self._holders)
        self._sessions.keep(needed | {lane for lane in held if lane is not None})

    # ---- sessions that are locked ---------------------------------------------------------------

    def open_share(self) -> tuple[int, ShareBook]:
        """Begin the share of a lock; return its number and its book."""
        number, _ = super().open_share()
        share = SessionShareBook(self._record, number)
        self._record.shares[number] = share
        return number, share

    def claim(self, session: str, number: int) -> None:
        """Have the messages of a session sent to a share."""
        self._holders[session] = number
        lane = self._sessions.lane(session)
        if lane is not None:
            self._span.give(lane, number)
            self._hand(number, self.cursor, self._span.read_end)

    def unclaim(self, session: str) -> None:
        """Have nothing of a session sent to anybody."""
        self._holders.pop(session, None)
        lane = self._sessions.lane(session)
        if lane is not None:
            self._span.give(lane, 0)
        self._record.has_news = True

    def next_free(self, locked: Iterable[str]) -> str | None:
        """Return the session, none of `locked`, whose lowest open message is the oldest.

        Nothing of it is blocked. None: no session has an open message, as far as was read.
        """
        if self._blocked.are_all_parked or self.is_crowded:
            return None
        taken = {lane for each in locked if (lane := self._sessions.lane(each)) is not None}
        is_blocked = (self._blocked.lanes | taken).__contains__
        offset = self._span.first_free(self.cursor, is_blocked)
        return None if offset is None else self._sessions.name(self._span.lane(offset))

    def first_open(self, session: str) -> int | None:
        """Return the lowest offset of a session that is to be sent; None: none is, as far as known.

        Its member has it not, and nothing of the session is blocked.
        """
        lane = self._sessions.lane(session)
        if lane is None or lane in self._blocked.lanes:
            return None
        return self._span.first_free(self.cursor, lambda other: other != lane)

    def has_open(self, session: str) -> bool:
        """Whether a session has messages which are not done, as far as was read."""
        lane = self._sessions.lane(session)
        return lane is not None and lane in self._span.lanes_undone(self.cursor)

    def open_sessions(self) -> list[OpenSession]:
        """Return the sessions that have messages which are not done, as far as was read."""
        lanes: Counter[int] = self._span.lanes_undone(self.cursor)
        lowest = self._span.lowest_undone(self.cursor)
        until = self._blocked.parked.until
        return [
            OpenSession(name, count, lowest[lane], until.get(lane, 0.0))
            for lane, count in lanes.items()
            if (name := self._sessions.name(lane)) is not None
        ]

    @property
    def open_count(self) -> int:
        """How many sessions have messages which are not done, as far as was read."""
        return len(self._span.lanes_undone(self.cursor))

    # ---- as it is stored ------------------------------------------------------------------------

    @property
    def parked(self) -> Mapping[int, float]:
        """What is stored of the sessions that wait: slot → until when, on the caller's clock."""
        stored: dict[int, float] = {}
        for lane, until in self._blocked.parked.stored().items():
            slot = lane if lane == ALL_LANES else self._sessions.slot(lane)
            stored[slot] = max(stored.get(slot, 0.0), until)
        return stored

    def unpark(self, lane: int) -> bool:
        """Let the sessions of a slot go on before their time; return whether one waited."""
        lanes = {lane, *self._sessions.of_slot(lane)}
        own = [each for each in lanes if self._sessions.slot(each) == lane]
        return sum(super(SessionBook, self).unpark(each) for each in own or [lane]) > 0

    def list_parked(self) -> list[ParkedLane]:
        """Return the sessions that wait for their time, by slot."""
        listed = super().list_parked()
        return sorted(each._replace(lane=self._sessions.slot(each.lane)) for each in listed)

    @property
    def position(self) -> int:
        """All below was read."""
        return self.read_end

    def moved_to(self, cursor: int) -> "SessionBook":
        """Return the book of a group that begins again at `cursor`; nobody has a session.

        Every ack is forgotten, and every session that waits for its time. What may have been
        processed before, and lies ahead now, goes out for the cause `RESET`.
        """
        book = SessionBook(cursor, max_span=self.max_span, max_parked=self.max_parked)
        book.mark(self.sent_end, Cause.RESET)
        return book
