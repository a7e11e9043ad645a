"""Checks the numbers of producers: each stored once, and none left out."""

from collections import OrderedDict
from typing import NamedTuple

from partq.core.dead_letters import PRODUCER_PREFIX
from partq.pipeline.audit.judge.finding import PRODUCERS, Found, finding
from partq.pipeline.audit.judge.lines import RecordLine

MAX_PRODUCERS = 65_536
"""Names of one partition that are remembered; a broker remembers fewer."""
FORGETTING_MS = 24 * 3600 * 1000
FORGETTING_COUNT = 10_000
"""A broker forgets a producer that was idle for a day, or when there are this many: then one of the
same name begins at 0 again."""


class _NumberedProducer(NamedTuple):
    stored_to: int
    segment: int
    """In which the last batch came: after a gap of the record the next number is not known."""
    used_ms: int


class ProducerJudge:
    """Follows the numbers of one partition's producers."""

    def __init__(self, partition: str, found: Found) -> None:
        self._partition = partition
        self._found = found
        self._known: OrderedDict[str, _NumberedProducer] = OrderedDict()

    def publish(self, line: RecordLine, segment: int) -> None:
        """Judge the numbers of a batch that was stored."""
        self._judge(line, line.number, segment)

    def use_up(self, line: RecordLine, segment: int) -> None:
        """Judge the numbers of a batch that waits, or is not stored as its id was known."""
        self._judge(line, line.first, segment)

    def _judge(self, line: RecordLine, number: int, segment: int) -> None:
        name = line.producer
        if not name or number < 0:
            return
        end = number + line.stop - line.first
        known = self._known.pop(name, None)
        if known is not None and not (number == 0 and self._may_be_forgotten(known, line)):
            if number < known.stored_to:
                text = (
                    f"numbers {number} to {min(end, known.stored_to) - 1} of producer {name} were "
                    f"stored before; now at offsets {line.first} to {line.stop - 1}"
                )
                self._report("number_stored_twice", line, text)
            elif (
                number > known.stored_to
                and known.segment == segment
                # Dead letters are numbered with gaps.
                and not name.startswith(PRODUCER_PREFIX)
            ):
                text = (
                    f"numbers {known.stored_to} to {number - 1} of producer {name} were never "
                    f"stored; number {number} was, at offset {line.first}"
                )
                self._report("number_skipped", line, text)
            end = max(end, known.stored_to)
        self._known[name] = _NumberedProducer(end, segment, line.at_ms)
        if len(self._known) > MAX_PRODUCERS:
            self._known.popitem(last=False)

    def _may_be_forgotten(self, known: _NumberedProducer, line: RecordLine) -> bool:
        is_idle = line.at_ms - known.used_ms >= FORGETTING_MS
        return is_idle or len(self._known) >= FORGETTING_COUNT

    def _report(self, what: str, line: RecordLine, text: str) -> None:
        self._found(
            finding(
                PRODUCERS,
                what,
                self._partition,
                text,
                sequence=line.sequence,
                at_ms=line.at_ms,
                first=line.first,
                stop=line.stop,
                broker_epoch=line.broker_epoch,
            )
        )
