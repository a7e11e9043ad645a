"""What the checks of one segment of a record know together, and those of one of its groups."""

from dataclasses import dataclass, field

from partq.pipeline.audit.judge.finding import Found
from partq.pipeline.audit.judge.groups.back import BackMessages
from partq.pipeline.audit.judge.groups.history import (
    FlowName,
    OffsetHistory,
    RecordedEvent,
    flow_of,
)
from partq.pipeline.audit.judge.groups.lanes import LaneHighs, PublishedSlots
from partq.pipeline.audit.judge.groups.session_lanes import SessionLanes
from partq.pipeline.audit.judge.groups.shares import Shares
from partq.pipeline.audit.judge.intervals import IntervalMap
from partq.pipeline.audit.judge.lines import RecordLine
from partq.pipeline.audit.judge.outcome import Handoff, HolderSpell, OwnedRange, Redelivered
from partq.pipeline.audit.judge.sink import JudgeSink


@dataclass(slots=True)
class SegmentState:
    """A part of a partition's record without a gap: each is judged by itself."""

    partition: str
    number: int
    is_late: bool
    """It does not begin with the partition's record: what was before is not known."""
    sink: JudgeSink
    claimed: int | None = None
    """Broker epoch of the last claim."""
    claim: RecordedEvent | None = None
    published: IntervalMap[bool] = field(default_factory=IntervalMap)
    slots: PublishedSlots = field(default_factory=PublishedSlots)
    log_end: int = 0
    """The end of the partition's log, as far as the record tells."""
    last_ms: int = 0
    """Time of the last line."""
    last_sequence: int = 0

    @property
    def found(self) -> Found:
        """Takes findings."""
        return self.sink.found


@dataclass(slots=True)
class PauseInForce:
    """A pause that is in force."""

    attempt: int
    epoch: int
    at: int
    drained: RecordLine | None = None


@dataclass(slots=True)
class GroupState:
    """What is known of a group in a segment."""

    segment: SegmentState
    name: str
    pieces: IntervalMap[OffsetHistory] = field(default_factory=IntervalMap)
    """What the group has done with each offset."""
    current: int | None = None
    """Epoch of the last bind, registration, commit or reset."""
    holder: str | None = None
    """Whom the last bind, registration or commit was for; "": nobody."""
    spell: HolderSpell | None = None
    """Where the signs of life of `holder` are noted."""
    events: dict[str, RecordedEvent] = field(default_factory=dict)
    """The last renewal, commit, reset and nack, and the last slots taken by force."""
    owner_at: int = 0
    """Line of the last change of the owner, a claim of the partition among it."""
    era: int = 0
    """How often the cursor was moved."""
    high: int | None = None
    """The end of what was delivered in this era."""
    reached: int | None = None
    """The end of what was delivered."""
    lanes: LaneHighs | None = None
    """How far each slot was delivered; None: the group has an order of the whole partition."""
    shares: Shares | None = None
    """Which member has messages of which slots; None: one at a time has the partition."""
    sessions: SessionLanes | None = None
    """Of which session each message is, where members lock sessions."""
    back: BackMessages | None = None
    """What is to be sent again at once, where messages have no order."""
    last_token: tuple[int, int] | None = None
    """Epoch of the last delivery, and the end of what was delivered under it."""
    delivered_at: int = -1
    """Line of the last delivery, by whomever."""
    pause: PauseInForce | None = None
    handoffs: dict[int, Handoff] = field(default_factory=dict)
    """Attempt → what is known of it."""
    skipped: IntervalMap[tuple[int, int]] = field(default_factory=IntervalMap)
    """What a delivery has passed over: sequence and time of its record."""
    early_acks: IntervalMap[RecordLine] = field(default_factory=IntervalMap)
    """What was acknowledged and not delivered before."""
    freed: IntervalMap[tuple[int, int]] = field(default_factory=IntervalMap)
    """What the log gave up too early: sequence and time of its record."""
    dropped: IntervalMap[tuple[int, int]] = field(default_factory=IntervalMap)
    """Dead letters that the log did not hold."""
    owned: dict[int, IntervalMap[bool]] = field(default_factory=dict)
    """Line of an owner's commit → what it acknowledged."""
    _repeats: dict[str, dict[int | None, tuple[RecordedEvent | None, int]]] = field(
        default_factory=dict
    )

    def note_event(self, kind: str, line: RecordLine) -> None:
        """Keep a line that redeliveries may go back to."""
        self.events[kind] = event_of(line)

    def event_of_cause(self, cause: str) -> RecordedEvent | None:
        """Return the last line that a redelivery for a cause may go back to."""
        if cause in ("broker_change", "store_rolled_back"):
            return self.segment.claim
        if self.shares is not None and cause == "forced_commit":
            return self.events.get("forced")
        return self.events.get(_EVENTS.get(cause, ""))

    def holder_of(self, line: RecordLine) -> FlowName:
        """Return what stands for all that a flow has, where several members share the partition.

        A flow has several sessions, each under a token that stands in the place of its number.
        """
        member, incarnation, flow = flow_of(line)
        if self.sessions is not None:
            flow = (line.broker_epoch << 64) + line.epoch
        return member, incarnation, flow

    def is_in_record(self, holder: FlowName) -> bool:
        """Return whether the record has all that was sent to a member that locks sessions."""
        return self.sessions is None or self.shares is None or self.shares.has_begun(holder)

    @property
    def has_order(self) -> bool:
        """Whether messages have any order: those of a group of type Shared have none."""
        return self.back is None

    def event_of_repeat(self, cause: str, flow: FlowName | None) -> RecordedEvent | None:
        """Return the same for what a flow of a shared partition was sent before.

        It is the later of the two: a flow that has ended before may have begun again since.
        """
        ended = None if self.shares is None else self.shares.end_of(flow)
        event = self.event_of_cause(cause)
        if ended is None or cause not in _ENDS:
            return event
        return ended if event is None or event.at < ended.at else event

    def token_at(self, at: int) -> int:
        """Return a line that stands for one of a delivery: no owner changed between the two."""
        return self.owner_at if at > self.owner_at else at

    def note_repeat(self, cause: str, event: RecordedEvent | None, messages: int) -> None:
        """Count messages that were delivered again."""
        name = "none" if cause == "" else cause
        of_cause = self._repeats.setdefault(name, {})
        key = None if event is None else event.at
        if key not in of_cause and key is not None:
            # It goes back to the last such line: of those before, nothing more comes.
            for done in [each for each in of_cause if each is not None]:
                self._flush(name, *of_cause.pop(done))
        _, count = of_cause.get(key, (event, 0))
        of_cause[key] = (event, count + messages)

    def flush_repeats(self) -> None:
        """Pass on what was counted."""
        for cause, of_cause in self._repeats.items():
            for event, messages in of_cause.values():
                self._flush(cause, event, messages)
        self._repeats = {}

    def _flush(self, cause: str, event: RecordedEvent | None, messages: int) -> None:
        row = Redelivered(self.segment.partition, self.name, cause, messages)
        if event is not None:
            row = row._replace(
                event=event.kind,
                event_sequence=event.sequence,
                event_ms=event.at_ms,
                attempt=event.attempt,
                broker=event.broker,
                member=event.member,
                target=event.target,
            )
            handoff = self.handoffs.get(event.attempt) if event.kind == "commit" else None
            if handoff is not None:
                handoff.messages_cut += messages
        self.segment.sink.repeated(row)

    def note_holder(self, line: RecordLine) -> None:
        """Note who holds the partition after a line."""
        assert self.holder is not None  # noqa: S101  the line has said it
        self.spell = self.segment.sink.changed(self.name, self.holder, line.at_ms)

    def note_life(self, line: RecordLine) -> None:
        """Note a line that the holder of the partition has caused."""
        spell = self.spell
        if spell is None or not spell.member or line.member != spell.member:
            return
        if spell.seen_ms is None:
            spell.from_ms = line.at_ms
        spell.seen_ms = line.at_ms

    def owned_ranges(self) -> list[OwnedRange]:
        """Return what each of several owners acknowledged; nothing where there was one."""
        if len(self.owned) < 2:
            return []
        return [
            OwnedRange(first, stop, self.segment.number, self.name, commit_at)
            for commit_at, ranges in self.owned.items()
            for first, stop, _ in ranges
        ]


_EVENTS = {
    "forced_commit": "commit",
    "flow_lost": "renewal",
    "reset": "reset",
    "nack": "nack",
    "ack_timeout": "nack",
}
"""Cause of a redelivery → what it goes back to; claims are the partition's."""
_ENDS = ("flow_lost", "forced_commit", "reset", "broker_change")
"""Causes for which the end of a flow of a shared partition suffices."""


def event_of(line: RecordLine) -> RecordedEvent:
    """Return a line as what redeliveries go back to."""
    return RecordedEvent(
        line.at,
        line.kind,
        line.sequence,
        line.at_ms,
        line.attempt,
        line.broker,
        line.member,
        line.target,
    )
