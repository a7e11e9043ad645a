"""Which messages of a partition the application has finished: acknowledged or given back."""

from collections.abc import Sequence

from partq.client.consume.assignment.acked_messages import AckedMessages
from partq.core.ranges import Ranges
from partq.wire.frames import Range


class FinishedMessages:
    """What needs nothing more of the application, until it is redelivered.

    Args:
        cursor: all below it is finished.
    """

    def __init__(self, cursor: int) -> None:
        self._upto = cursor
        self._above = Ranges()
        """What is finished above `_upto`; none redelivered since."""
        self._again = Ranges()
        """What was redelivered out of turn, and is not finished since."""
        self._acked = AckedMessages()

    @property
    def again_stop(self) -> int:
        """The offset behind all that was redelivered out of turn, and is not finished since."""
        return self._again.stop

    def again_below(self, upto: int) -> Ranges:
        """Return what was redelivered out of turn below `upto`, and is not finished since."""
        return Ranges(self._again.within(0, upto))

    def leaves_below(self, begun_upto: int) -> bool:
        """Say whether something below `begun_upto`, or out of turn, is not finished."""
        return begun_upto > self._upto or bool(self._again)

    def count_left_below(self, begun_upto: int) -> int:
        """Return how many messages in turn below `begun_upto` are not finished."""
        in_turn = begun_upto - self._upto - self._above.count(self._upto, begun_upto)
        return max(0, in_turn)

    def add(self, upto: int, ranges: Sequence[Range]) -> int:
        """Note what is finished; return how many messages of it were not until now."""
        count = 0
        if self._again:
            for start, stop in ranges:
                count += self._again.count(start, stop)
                self._again.remove(start, stop)
        for first, stop in ((self._upto, upto), *ranges):
            start = max(first, self._upto)
            if stop > start:
                count += stop - start - self._above.count(start, stop)
                self._above.add(start, stop)
        self._upto = max(self._upto, self._above.end_of_run(self._upto))
        self._above.drop_below(self._upto)
        return count

    def ack(self, upto: int, ranges: Sequence[Range]) -> int:
        """Note what is acknowledged; return how many messages of it were not finished until now."""
        count = self.add(upto, ranges)
        self._acked.add([*ranges, *self._again.outside(0, upto)])
        return count

    def are_acked(self, ranges: Sequence[Range]) -> bool:
        """Say whether each message of `ranges` was acknowledged."""
        return self._acked.has_all(ranges)

    def deliver_again(self, start: int, stop: int) -> None:
        """Note what is redelivered, in turn or not: an ack of it was refused."""
        self._acked.remove(start, stop)

    def redeliver(self, start: int, stop: int) -> None:
        """Note what is redelivered out of turn."""
        self._again.add(start, stop)

    def rewind(self, start: int) -> None:
        """Forget what is finished from `start` on: it is redelivered, in turn."""
        self._upto = min(self._upto, start)
        self._above.remove(start, self._above.stop)
        self._again.remove(start, self._again.stop)
