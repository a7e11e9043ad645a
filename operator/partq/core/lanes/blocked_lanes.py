"""Which lanes nothing may be sent of now, to anybody or to one share, and what each waits for."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from partq.core.cursor.processing_times import within
from partq.core.lanes.parked_lanes import ALL_LANES, ParkedLanes


class BlockedLanes:
    """Lanes that are parked, uncounted, doomed, tried or draining; others go on."""

    __slots__ = (
        "_doomed",
        "_doomed_lanes",
        "_tried",
        "_tried_lanes",
        "_uncounted",
        "counts_made",
        "draining",
        "lanes",
        "parked",
    )

    def __init__(
        self,
        max_parked: int,
        parked: Mapping[int, float] | None,
        quarantined: Collection[int] = (),
    ) -> None:
        self.parked = ParkedLanes(max_parked, parked, quarantined)
        self._uncounted: dict[int, int] = {}
        """Lane → `counts_made` of its last count, which is not stored."""
        self._doomed: dict[int, int] = {}
        """Offset that is to become a dead letter → its lane."""
        self._doomed_lanes: Counter[int] = Counter()
        """Lane → how many of its offsets are."""
        self._tried: dict[int, int] = {}
        """Offset that has failed, and is in a member's hands again → its lane; one of a lane."""
        self._tried_lanes: set[int] = set()
        self.draining: dict[int, int] = {}
        """Lane → the share that has messages of it, and is not its owner."""
        self.lanes: set[int] = set(self.parked.lanes)
        """All of them."""
        self.counts_made = 0

    @property
    def are_all_parked(self) -> bool:
        """Whether every lane waits, for more wait than the record holds one by one."""
        return ALL_LANES in self.parked

    @property
    def waiting(self) -> int:
        """How many lanes wait for their time, or for a dead letter to be stored."""
        both = self._doomed_lanes.keys() & self.parked.until.keys()
        return len(self.parked) + len(self._doomed_lanes) - len(both)

    @property
    def is_crowded(self) -> bool:
        """Whether more of them wait than may while new messages are sent."""
        return self.waiting > self.parked.max_lanes if self._doomed else self.parked.is_full

    def try_again(self, offset: int, lane: int) -> None:
        """Have a lane wait until a message of it that has failed, and goes again, is done."""
        self._tried[offset] = lane
        self._tried_lanes.add(lane)
        self.lanes.add(lane)

    def trials(self, start: int, stop: int) -> list[int]:
        """Return the offsets of [start, stop) that have failed, and are in a member's hands."""
        return within(self._tried, start, stop) if self._tried else []

    def end_trials(self, offsets: Iterable[int]) -> list[int]:
        """Note that no member has these offsets any more; return the lanes that go on."""
        lanes = [self._tried.pop(offset) for offset in offsets if offset in self._tried]
        self._tried_lanes.difference_update(lanes)
        return self._go_on(lanes)

    def doom(self, offset: int, lane: int) -> None:
        """Have the lane of an offset wait until that is stored as a dead letter."""
        if offset not in self._doomed:
            self._doomed[offset] = lane
            self._doomed_lanes[lane] += 1
            self.lanes.add(lane)

    def spare(self, offset: int) -> list[int]:
        """Note that an offset is a dead letter, or will be none; return the lanes that go on."""
        lane = self._doomed.pop(offset, None)
        if lane is None:
            return []
        self._doomed_lanes[lane] -= 1
        if not self._doomed_lanes[lane]:
            del self._doomed_lanes[lane]
        return self._go_on([lane])

    def end_waits(self, now: float) -> list[int]:
        """End the delays that are over by `now`; return the lanes that go on."""
        return self._go_on(self.parked.end_waits(now))

    def unpark(self, lanes: Iterable[int]) -> list[int]:
        """End the delays of lanes; return the lanes that go on."""
        return self._go_on([lane for lane in lanes if self.parked.remove(lane)])

    def park(self, lane: int, due: float) -> None:
        """Have a lane wait until `due`."""
        self.parked.park(lane, due)
        self.lanes.add(lane)

    def hold(self, lane: int, *, quarantines: bool) -> bool:
        """Have a lane wait until it is released; return whether that is news."""
        self.lanes.add(lane)
        return self.parked.hold(lane, quarantines=quarantines)

    def count(self, lanes: Collection[int]) -> None:
        """Have lanes wait until a count of theirs, which was just made, is stored."""
        self.counts_made += 1
        self._uncounted.update(dict.fromkeys(lanes, self.counts_made))
        self.lanes.update(lanes)

    def counts_stored(self, counts_made: int) -> list[int]:
        """Note that the counts are stored as of `counts_made`; return the lanes that go on."""
        stored = [lane for lane, made in self._uncounted.items() if made <= counts_made]
        for lane in stored:
            del self._uncounted[lane]
        return self._go_on(stored)

    def drain(self, holders: Mapping[int, int]) -> list[int]:
        """Have lanes wait for the shares that have messages of them; return those that go on."""
        ended = self.draining.keys() - holders.keys()
        self.draining = dict(holders)
        self.lanes.update(holders)
        return self._go_on(ended)

    def drained(self, lanes: Iterable[int]) -> list[int]:
        """Note that nobody but their owners has messages of lanes; return those that go on."""
        return self._go_on([lane for lane in lanes if self.draining.pop(lane, None) is not None])

    def _go_on(self, lanes: Iterable[int]) -> list[int]:
        free = [
            lane
            for lane in lanes
            if lane not in self.parked
            and lane not in self._uncounted
            and lane not in self._doomed_lanes
            and lane not in self._tried_lanes
            and lane not in self.draining
            and lane != ALL_LANES
        ]
        self.lanes.difference_update(free)
        return free


class OwedLanes:
    """Lanes of which a share was asked to return what it has not begun: it is sent nothing more.

    They are owed until it answers.
    """

    __slots__ = ("_all", "last_notice", "notices")

    def __init__(self) -> None:
        self.notices: dict[int, int] = {}
        """Lane → number of the notice that asked for it."""
        self._all = 0
        """Number of the notice that asked for all lanes; 0: none is open."""
        self.last_notice = 0

    @property
    def are_all(self) -> bool:
        """Whether all lanes are owed."""
        return self._all > 0

    def ask(self, lanes: Iterable[int]) -> frozenset[int]:
        """Have lanes wait for the answer to a new notice; return those that need one.

        Of the others an answer is awaited already.
        """
        asked = frozenset(() if self._all else lanes).difference(self.notices)
        if asked:
            self.last_notice += 1
            self.notices.update(dict.fromkeys(asked, self.last_notice))
        return asked

    def join(self, lanes: Collection[int]) -> int:
        """Have one notice ask for lanes that several were to ask for; return its number."""
        self.last_notice += 1
        self.notices.update(dict.fromkeys(lanes, self.last_notice))
        return self.last_notice

    def ask_all(self) -> int:
        """Have all lanes wait for the answer to a new notice; return its number."""
        self.last_notice += 1
        self._all = self.last_notice
        return self.last_notice

    def answered(self, notice: int) -> list[int]:
        """Note that a notice is answered; return the lanes that are owed no more."""
        if notice == self._all:
            self._all = 0
        lanes = [lane for lane, number in self.notices.items() if number == notice]
        for lane in lanes:
            del self.notices[lane]
        return lanes

    def forget(self) -> list[int]:
        """Await no answer any more: the flow has ended; return the lanes that were owed."""
        lanes, self.notices, self._all = list(self.notices), {}, 0
        return lanes
