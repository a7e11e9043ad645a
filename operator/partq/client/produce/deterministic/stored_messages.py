"""Which messages of a deterministic producer are stored already, also across changes of the layout.

The application sends the same messages in the same order at each start. A series of numbers has the
first messages of its slots, but for those that a series before it has: so the slots of the messages
tell, one after the other, which of them are stored.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping

from partq.client.producer_state import ProducerState
from partq.core.model import PartitionId
from partq.core.numbering.fixed_series import FixedSeries
from partq.errors import ConflictError

SeriesId = tuple[PartitionId, int]
"""A partition, and the generation with which its series begins."""


class _StoredRest:
    """What is stored of one series, less what the application has come to."""

    __slots__ = ("ahead", "series", "skippable")

    def __init__(self, series: FixedSeries, skippable: int, ahead: int) -> None:
        self.series = series
        self.skippable = skippable
        """How many come first, which the application does not send again."""
        self.ahead = ahead
        """How many come then, which another process has stored: those may be sent."""

    @property
    def id(self) -> SeriesId:
        return self.series.partition, self.series.generation


class _BegunSeries:
    """The series that begin with one change: each slot is in one of them at most."""

    def __init__(self, rests: Iterable[_StoredRest]) -> None:
        pieces = sorted(
            (each.start, each.stop, at, rest)
            for at, rest in enumerate(rests)
            for each in rest.series.slots
        )
        self._starts = [start for start, *_ in pieces]
        self._stops = [stop for _, stop, *_ in pieces]
        self._rests = [rest for *_, rest in pieces]

    def rest_of(self, slot: int) -> _StoredRest | None:
        """Return what is stored of the series that has a slot."""
        at = bisect_right(self._starts, slot) - 1
        return self._rests[at] if at >= 0 and slot < self._stops[at] else None


class StoredMessages:
    """Tells the messages that are stored from those that are not.

    Args:
        producer: its id.
        state: how far it was when it was entered.
    """

    def __init__(self, producer: str, state: ProducerState) -> None:
        self._producer = producer
        self._is_asked = False
        """Whether the application asks of each message whether it is stored."""
        self._is_counted = False
        """Whether the application counts by the numbers that are due."""
        self._must_ask = bool(state.earlier)
        slots = state.queue_layout.layout.slots
        rests = [_StoredRest(each.series, each.due, 0) for each in state.earlier]
        rests += [
            _StoredRest(FixedSeries(partition, each.layout, slots(partition)), each.due, 0)
            for partition, each in state.progress.items()
            if each.due
        ]
        self._set(rests)

    def _set(self, rests: Iterable[_StoredRest]) -> None:
        self._rests = {each.id: each for each in rests}
        layers: dict[int, list[_StoredRest]] = {}
        for each in self._rests.values():
            if each.skippable or each.ahead:
                layers.setdefault(each.series.generation, []).append(each)
        self._layers = [_BegunSeries(layers[generation]) for generation in sorted(layers)]

    def _of(self, slot: int) -> Iterator[_StoredRest]:
        """Return what is left of each series of a slot, the oldest first."""
        for layer in self._layers:
            rest = layer.rest_of(slot)
            if rest is not None and (rest.skippable or rest.ahead):
                yield rest

    def check_due(self) -> None:
        """See that numbers alone tell what is stored; the application counts by them from now on.

        Raises:
            ConflictError: they do not: messages were stored before a change of the layout.
        """
        if self._must_ask:
            raise self._must_skip("the numbers that are due do not tell which messages are stored")
        self._count_itself()

    def skip(self, slot: int) -> bool:
        """Come to the next message, of a slot; return whether it is stored.

        Raises:
            ConflictError: the application counts itself.
        """
        if self._is_counted:
            raise ConflictError(
                f"producer {self._producer!r}: skip_stored() was asked behind due() or a message "
                "that was sent; ask it of each message from the first on, and nothing else"
            )
        self._is_asked = True
        for rest in self._of(slot):
            if rest.skippable:
                rest.skippable -= 1
            else:
                rest.ahead -= 1
            return True
        return False

    def check_sent(self, slots: Iterable[int]) -> None:
        """See that messages of these slots, which are sent, are not among those to be left out.

        Raises:
            ConflictError: they are.
        """
        if not self._is_asked and self._must_ask:
            raise self._must_skip("what is stored has to be left out")
        if not self._is_asked:
            self._count_itself()
        elif self._layers:
            for slot in slots:
                if any(each.skippable for each in self._of(slot)):
                    raise self._must_skip("a message is sent that is stored")

    def find_stored(self, slot: int) -> PartitionId | None:
        """Come to the next message that is sent, of a slot; return where it is stored already.

        None: it is not. Others than those that `check_sent` has seen are not to be asked for.
        """
        for rest in self._of(slot):
            if rest.ahead:
                rest.ahead -= 1
                return rest.series.partition
        return None

    def cross(self, state: ProducerState, positions: Mapping[SeriesId, int | None]) -> None:
        """Take what is stored in the series that a change has ended.

        Args:
            state: after the change, when nothing is stored in earlier series any more.
            positions: of the series that the producer has sent to: the number of the first message
                without an answer, or of the next; None: no message comes there any more.

        Raises:
            ConflictError: messages that were stored are not known any more.
        """
        ended = {(each.series.partition, each.series.generation): each for each in state.earlier}
        lasting = {(partition, each.layout) for partition, each in state.progress.items()}
        for key, position in positions.items():
            stored = ended[key].due if key in ended else 0
            if key not in lasting and position is not None and stored < position:
                raise ConflictError(
                    f"producer {self._producer!r}: partition {key[0]} has confirmed {position} "
                    f"messages, and knows {stored} of them since the partition count of the queue "
                    "was changed; find out what is stored, and publish the rest under another "
                    "producer id"
                )
        rests = [each for key, each in self._rests.items() if key not in ended]
        for key, each in ended.items():
            known = self._rests.get(key)
            skippable = 0 if known is None else known.skippable
            ahead = each.due if known is None else known.ahead
            if key in positions:
                position = positions[key]
                ahead = 0 if position is None else each.due - position
            rests.append(_StoredRest(each.series, skippable, ahead))
        self._set(rests)

    def _count_itself(self) -> None:
        """Leave what was stored when it began to the application."""
        if self._is_asked or self._is_counted:
            return
        self._is_counted = True
        for each in self._rests.values():
            each.skippable = 0
        self._set(self._rests.values())

    def _must_skip(self, problem: str) -> ConflictError:
        return ConflictError(
            f"producer {self._producer!r}: {problem}, as the partition count of the queue was "
            "changed; ask skip_stored() of each message, from the first on, and send those of "
            "which it returns False"
        )
