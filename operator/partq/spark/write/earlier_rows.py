"""Rows of a task that an earlier attempt has stored before the partition count was changed."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from partq.core.model import SLOT_COUNT
from partq.core.numbering.fixed_series import FixedSeries, StoredSeries


class _Rest:
    """What is stored of one series, less the rows that were found so far."""

    def __init__(self, stored: StoredSeries) -> None:
        self.series = stored.series
        self.due = stored.due
        self.left = stored.due
        self.has_slot = np.zeros(SLOT_COUNT, np.bool_)
        for each in stored.series.slots:
            self.has_slot[each.start : each.stop] = True


class EarlierRows:
    """Finds the rows, which come in the same order at each attempt.

    A series has the first rows of its slots, but for those that a series before it has.

    Args:
        stored: the series, in the order in which they began.
    """

    def __init__(self, stored: Sequence[StoredSeries]) -> None:
        self._rests = [_Rest(each) for each in stored]
        self.count = 0
        """How many rows it has found."""

    def find(self, slots: npt.NDArray[np.uint16]) -> npt.NDArray[np.bool_] | None:
        """Say which of the next rows are stored, by their slots; None: none of them."""
        found: npt.NDArray[np.bool_] | None = None
        for rest in self._rests:
            if not rest.left:
                continue
            if found is None:
                found = np.zeros(len(slots), np.bool_)
            rows = np.flatnonzero(rest.has_slot[slots] & ~found)[: rest.left]
            found[rows] = True
            rest.left -= len(rows)
            self.count += len(rows)
        return found

    def missing(self) -> tuple[FixedSeries, int, int] | None:
        """Return a series that has more rows than were found: how many it has, and were found."""
        for rest in self._rests:
            if rest.left:
                return rest.series, rest.due, rest.due - rest.left
        return None
