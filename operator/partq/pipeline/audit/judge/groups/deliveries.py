"""Checks deliveries: in order, and again only for a cause that the record bears out (S3)."""

from collections import OrderedDict

from partq.pipeline.audit.judge.finding import ACKS, DUPLICATES, ORDER, of_line
from partq.pipeline.audit.judge.groups.history import (
    ACKED,
    BEFORE,
    IN_PLACE,
    NO_CAUSE,
    OPEN,
    UNTOUCHED,
    OffsetHistory,
    RecordedEvent,
)
from partq.pipeline.audit.judge.groups.islands import Islands
from partq.pipeline.audit.judge.groups.lanes import BY_SLOT, LaneHighs
from partq.pipeline.audit.judge.groups.state import GroupState
from partq.pipeline.audit.judge.lines import RecordLine

MAX_EPOCHS = 1_000
"""Epochs whose deliveries are remembered: a message that is in flight is of one of the last."""
MAX_NUMBERS = 64
"""Delivery numbers of one token that are remembered: they only grow."""


class DeliveryJudge:
    """Judges the deliveries under the token that holds."""

    def __init__(self, state: GroupState) -> None:
        self._state = state
        self._segment = state.segment
        self._highs: dict[tuple[int, int, int], int] = {}
        """Broker epoch, epoch and delivery number → the end of what was delivered under them."""
        self._epochs: OrderedDict[int, int] = OrderedDict()
        """Epoch → the end of what was delivered under it."""

    def deliver(self, line: RecordLine) -> None:
        """Judge a delivery part by part, and note it."""
        state = self._state
        first, stop = line.first, line.stop
        if first >= stop:
            return
        if state.back is not None:
            if state.high is None or stop > state.high:
                state.back.note_new()
            state.back.end(first, stop)
        token = (line.broker_epoch, line.epoch, line.delivery)
        token_high = self._highs.get(token)
        out_of_order: Islands[str] = Islands()
        again = _Again(line, state, token_high, self._epochs)
        is_keyed = line.flags in BY_SLOT
        if is_keyed and state.lanes is None:
            state.lanes = LaneHighs(self._segment.slots)
        flow = None if state.shares is None else state.holder_of(line)

        def change(first: int, stop: int, old: OffsetHistory | None) -> OffsetHistory:
            piece = UNTOUCHED if old is None else old
            if piece.at >= 0:
                again.judge(first, stop, piece)
            else:
                is_late = self._segment.is_late and line.cause not in NO_CAUSE
                if is_keyed and state.lanes is not None and not is_late:
                    for offset in state.lanes.behind(first, stop, state.era):
                        out_of_order.add("", offset, offset + 1)
                elif not state.has_order:
                    pass
                elif state.high is not None and first < state.high and not is_late:
                    out_of_order.add("", first, min(stop, state.high))
                if piece.done not in (OPEN, BEFORE) and len(state.early_acks):
                    self._find_early_acks(first, stop)
            return OffsetHistory(
                line.at, line.at_ms, line.epoch, True, False, False, piece.done, piece.era, flow
            )

        if state.reached is None or first > state.reached:
            self._note_skipped(line)
        state.pieces.update(first, stop, change)
        if is_keyed and state.lanes is not None:
            state.lanes.deliver(line)
        for _, begin, end in out_of_order:
            self._report(
                ORDER,
                "out_of_order",
                line,
                (begin, end),
                f"were delivered first after offset {(state.high or 0) - 1} had been",
            )
        again.report()
        self._note(line, token)
        if state.lanes is not None:
            state.lanes.note(first, stop, state.era)

    def _note(self, line: RecordLine, token: tuple[int, int, int]) -> None:
        state, stop = self._state, line.stop
        state.high = stop if state.high is None else max(state.high, stop)
        state.reached = stop if state.reached is None else max(state.reached, stop)
        self._highs[token] = max(self._highs.get(token, stop), stop)
        if len(self._highs) > MAX_NUMBERS:
            del self._highs[next(iter(self._highs))]
        self._epochs[line.epoch] = max(self._epochs.get(line.epoch, stop), stop)
        if len(self._epochs) > MAX_EPOCHS:
            self._epochs.popitem(last=False)
        state.last_token = (line.epoch, self._epochs[line.epoch])

    def _note_skipped(self, line: RecordLine) -> None:
        """Note what this delivery passes over: if it stays like that, it is lost."""
        state = self._state
        begin = 0 if state.reached is None else state.reached
        for first, stop, piece in state.pieces.parts(begin, line.first):
            if piece is None:
                for low, high, is_published in self._segment.published.parts(first, stop):
                    if is_published:
                        state.skipped.set(low, high, (line.sequence, line.at_ms))

    def _find_early_acks(self, first: int, stop: int) -> None:
        early = self._state.early_acks
        for begin, end, ack in early.parts(first, stop):
            if ack is not None:
                text = f"offsets {begin} to {end - 1} were acknowledged before they were delivered"
                self._segment.found(
                    of_line(
                        ACKS, "ack_before_delivery", self._segment.partition, ack, text, begin, end
                    )
                )
        early.set(first, stop, None)

    def _report(
        self, check: str, what: str, line: RecordLine, span: tuple[int, int], text: str
    ) -> None:
        first, stop = span
        text = f"offsets {first} to {stop - 1} {text}"
        partition = self._segment.partition
        self._segment.found(of_line(check, what, partition, line, text, first, stop))


class _Again:
    """What of one delivery had been delivered before."""

    def __init__(
        self,
        line: RecordLine,
        state: GroupState,
        token_high: int | None,
        epochs: OrderedDict[int, int],
    ) -> None:
        self._line = line
        self._state = state
        self._token_high = token_high
        self._epochs = epochs
        self._event: RecordedEvent | None = state.event_of_cause(line.cause)
        self._wrong: Islands[str] = Islands()
        self._out_of_turn: Islands[str] = Islands()
        self._passed_over: Islands[tuple[int, int]] = Islands()

    def judge(self, first: int, stop: int, before: OffsetHistory) -> None:
        """Judge a part that was delivered before."""
        if before.is_released:
            return  # nobody had begun it
        line, state = self._line, self._state
        event = self._event
        if before.flow is not None:
            if not state.is_in_record(before.flow):
                return
            event = state.event_of_repeat(line.cause, before.flow)
        event = event if event is not None and event.at > before.at else None
        if not state.has_order or state.sessions is not None:
            if before.is_held and before.flow not in (None, state.holder_of(line)):
                return  # at two members, which is said there
            if line.cause in IN_PLACE and not before.is_taken_back:
                event = None
        if before.done == ACKED and before.era == state.era:
            self._wrong.add("delivered_after_ack", first, stop)
        elif line.cause in NO_CAUSE:
            self._wrong.add("duplicate_without_cause", first, stop)
        elif event is None:
            self._wrong.add("unfounded_cause", first, stop)
        state.note_repeat(line.cause, event, stop - first)
        if line.flags in BY_SLOT or not state.has_order:
            return  # a key waits for its time, and others are sent meanwhile
        if self._token_high is not None and line.cause not in IN_PLACE:
            self._out_of_turn.add("", first, min(stop, self._token_high))
        was_in_flight = before.done == OPEN and not before.is_taken_back
        if was_in_flight and before.epoch < line.epoch:
            for epoch, reached in self._epochs.items():
                if before.epoch < epoch < line.epoch and reached > stop:
                    self._passed_over.add((before.epoch, epoch), first, stop)

    def report(self) -> None:
        """Report what was found."""
        line, found = self._line, self._state.segment.found
        partition = self._state.segment.partition
        texts = {
            "delivered_after_ack": "after they were acknowledged",
            "duplicate_without_cause": "and no cause is recorded",
            "unfounded_cause": f"for {line.cause}; nothing of that kind had happened since they "
            "were last delivered",
        }
        for what, first, stop in self._wrong:
            comma = "," if what == "duplicate_without_cause" else ""
            text = f"offsets {first} to {stop - 1} were redelivered{comma} {texts[what]}"
            found(of_line(DUPLICATES, what, partition, line, text, first, stop))
        for _, first, stop in self._out_of_turn:
            text = (
                f"offsets {first} to {stop - 1} were redelivered after offset "
                f"{(self._token_high or 0) - 1}, under the same token"
            )
            found(of_line(ORDER, "redelivered_out_of_order", partition, line, text, first, stop))
        for (prior, between), first, stop in self._passed_over:
            text = (
                f"offsets {first} to {stop - 1} were in flight under epoch {prior}; epoch "
                f"{between} was sent later ones without them"
            )
            found(of_line(ORDER, "skipped_ahead", partition, line, text, first, stop))
