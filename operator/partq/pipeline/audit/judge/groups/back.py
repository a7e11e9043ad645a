"""What is to be sent again at once, in a group whose messages have no order."""

from partq.pipeline.audit.judge.intervals import IntervalMap

MAX_FLUSHES = 2
"""What came back may wait until its count is stored, by the next flush or by the one behind it."""


class BackMessages:
    """Follows what members have lost, and whether others were sent while it was not.

    A broker sends what waits for no time before anything new. So what is still to be sent again,
    after new messages were for a while, is lost.
    """

    def __init__(self) -> None:
        self._waiting: IntervalMap[tuple[int, int, int]] = IntervalMap()
        """Offsets that came back → after how many flushes, and the sequence and time of that."""
        self._flushes = 0
        self._flush = -1
        """Sequence of the last one."""
        self._sent_new = 0
        """After how many flushes a message was sent for the first time."""

    def note_flush(self, sequence: int) -> None:
        """Note a line of acks, or of what was given back, of the group of lines `sequence`."""
        self._flushes += sequence != self._flush
        self._flush = sequence

    def note(self, first: int, stop: int, place: tuple[int, int]) -> None:
        """Note what nobody has any more; `place`: sequence and time of the line that says so."""
        self._waiting.set(first, stop, (self._flushes, *place))

    def end(self, first: int, stop: int) -> None:
        """Note what was sent again, or is done, or waits for a time."""
        if len(self._waiting):
            self._waiting.set(first, stop, None)

    def note_new(self) -> None:
        """Note that a message was sent for the first time, since the group began where it is."""
        self._sent_new = self._flushes

    def forget(self) -> None:
        """Note that the group begins elsewhere, or that its broker is another one."""
        self._waiting = IntervalMap()
        self._sent_new = self._flushes

    def lost(self, first: int, stop: int) -> list[tuple[int, int, tuple[int, int]]]:
        """Return what of [first, stop) new messages have passed, with the place of its loss."""
        return [
            (low, high, each[1:])
            for low, high, each in self._waiting.parts(first, stop)
            if each is not None and each[0] + MAX_FLUSHES <= self._sent_new
        ]
