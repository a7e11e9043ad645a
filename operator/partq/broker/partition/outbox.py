"""Dead letters of one group and partition in memory: waiting, or about to be moved."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from partq.aio import Signal
from partq.core.cursor.unreadable import Unreadable
from partq.core.dead_letters import MAX_WAITING, DeadLetter, DeadLetterReason, LetterNote
from partq.core.model import BrokerEpoch
from partq.errors import PartqError

Answer = Callable[[PartqError | None], None]
"""Takes None once an ack or a nack is stored, else the reason why it does not count."""


@dataclass(slots=True)
class OutboxProblem:
    """Why the outbox does not get shorter."""

    message: str
    since: float
    is_lasting: bool = False
    """The problem has lasted: the partition's deliveries stop."""


@dataclass(slots=True)
class BrokenBatch:
    """A batch with undecodable messages: one letter carries it, the others name that one."""

    unreadable: Unreadable
    slots: Sequence[int]
    broker_epoch: BrokerEpoch
    """That it was appended under."""
    carrier: int | None = None
    """The offset of the letter that was sent with it."""

    def spares(self, offset: int) -> bool:
        """Whether an offset is undecodable, and another letter carries its batch."""
        return self.carrier not in {None, offset} and offset in self.unreadable


@dataclass(slots=True)
class Outbox:
    """The stored outbox, and what is to come into it."""

    letters: list[DeadLetter] = field(default_factory=list)
    """As stored, by rising numbers."""
    scheduled: dict[int, DeadLetterReason] = field(default_factory=dict)
    """Offsets that are to be moved before anything more is delivered."""
    asked_for: dict[int, LetterNote] = field(default_factory=dict)
    """What the application said of those of `scheduled` that it asked for."""
    given_back: dict[int, LetterNote] = field(default_factory=dict)
    """What the last nack of an offset said, of the latest ones: it may lead here."""
    waits: list[tuple[Collection[int], Answer]] = field(default_factory=list)
    """To be called once these offsets are stored here: what an application asked for."""
    aside: dict[int, None] = field(default_factory=dict)
    """Undecodable offsets, to be moved; when there is no room, the others continue."""
    is_parking: bool = False
    """Nothing comes in here by itself but an undecodable message: dead letters stop nothing."""
    broken: BrokenBatch | None = None
    """The last batch of a letter that did not decode."""
    is_in_doubt: bool = False
    """Whether the stored outbox may hold more than `letters`, or a failover may take some back.

    So it is after a move without an answer, and when they were read; none is sent then.
    """
    trouble: OutboxProblem | None = None
    is_working: bool = False
    """A task moves and sends."""
    to_move: Signal = field(default_factory=Signal)
    """Set when the next offset is to be moved: it must not wait for the repeat of a failed step.

    A task that takes it before it looks at what is to be moved misses nothing: each is set once.
    """

    def read(self, letters: Sequence[DeadLetter]) -> None:
        """Take what the record holds, whether a replica has it or not."""
        self.letters = list(letters)
        self.is_in_doubt = bool(letters)

    def note(self, offsets: Iterable[int], note: LetterNote) -> None:
        """Remember what the application said as it gave messages back, until it says more."""
        for offset in offsets:
            self.given_back.pop(offset, None)
            if note.headers:
                self.given_back[offset] = note
        for offset in list(self.given_back)[:-MAX_WAITING]:
            del self.given_back[offset]

    def note_of(self, offset: int) -> LetterNote | None:
        """Return what the application said of a letter."""
        return self.asked_for.get(offset) or self.given_back.get(offset)

    def moved(self, offset: int) -> None:
        """Forget what was to be moved, and is."""
        for notes in (self.scheduled, self.asked_for, self.given_back, self.aside):
            notes.pop(offset, None)

    def end_waits(self, *, for_good: bool = False) -> list[Answer]:
        """Return whose dead letters are stored, each once; `for_good`: all, whatever is stored."""
        over = [for_good or self.scheduled.keys().isdisjoint(each) for each, _ in self.waits]
        ended = [answer for (_, answer), is_over in zip(self.waits, over, strict=True) if is_over]
        self.waits = [wait for wait, is_over in zip(self.waits, over, strict=True) if not is_over]
        return ended

    def forget(self) -> list[Answer]:
        """Give up what is to be moved, as the cursor is; return who waits for it."""
        for notes in (self.scheduled, self.asked_for, self.given_back, self.aside):
            notes.clear()
        return self.end_waits(for_good=True)

    @property
    def free(self) -> int:
        """How many more messages an application may ask for."""
        return max(0, self.room - len(self.scheduled))

    @property
    def has_work(self) -> bool:
        """Whether something is to be moved, to be sent, or to be found out."""
        return bool(self.scheduled or self.aside or self.letters or self.is_in_doubt)

    @property
    def can_move(self) -> bool:
        """Whether something is to be moved, and there is room for it."""
        return bool((self.scheduled or self.aside) and self.room)

    def wake(self) -> None:
        """Say that another offset is to be moved."""
        self.to_move.set()
        self.to_move = Signal()

    @property
    def room(self) -> int:
        """How many more messages it takes."""
        return max(0, MAX_WAITING - len(self.letters))

    @property
    def blocked(self) -> str:
        """Why the group's deliveries stop; empty: they do not."""
        return "" if self.is_parking and not self.scheduled else self._stopped_by

    @property
    def parked(self) -> str:
        """Why dead letters have been waiting here while deliveries continue; empty: none are."""
        return self._stopped_by if self.is_parking and not self.scheduled else ""

    @property
    def _stopped_by(self) -> str:
        if not self.letters and not self.scheduled:
            return ""  # what was to be moved is done with otherwise, and the trouble with it
        if self.trouble is not None and (self.trouble.is_lasting or not self.room):
            return self.trouble.message
        return "" if self.room else f"{MAX_WAITING} dead letters wait to be sent"

    @property
    def is_holding(self) -> bool:
        """Whether nothing may be delivered for now."""
        # Asked for each delivery: one that is empty, as nearly all are, costs next to nothing.
        # An undecodable message holds until it is stored as a dead letter, if there is room for it.
        return bool(self.scheduled or (self.aside and self.room) or (self.letters and self.blocked))
