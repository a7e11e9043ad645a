"""The stored batches of a partition, as the record has them."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from partq.pipeline.audit.judge.outcome import RecordedBatch

Ints = npt.NDArray[np.int64]


class RecordedBatches:
    """The batches of a partition that were stored under one broker epoch, found by offset."""

    def __init__(self, batches: Sequence[RecordedBatch]) -> None:
        self.batches = sorted(batches)
        self._firsts = np.array([each.first for each in self.batches], np.int64)
        self._stops = np.array([each.stop for each in self.batches], np.int64)

    @classmethod
    def by_epoch(cls, batches: Sequence[RecordedBatch]) -> "dict[int, RecordedBatches]":
        """Return the batches by the broker epoch that they were stored under."""
        of_epoch: dict[int, list[RecordedBatch]] = {}
        for each in batches:
            of_epoch.setdefault(each.append_broker_epoch, []).append(each)
        return {epoch: cls(found) for epoch, found in of_epoch.items()}

    def places(self, offsets: Ints) -> Ints:
        """Return which batch holds each offset; -1: none does."""
        places = np.searchsorted(self._firsts, offsets, "right") - 1
        is_in = (places >= 0) & (offsets < self._stops[places])
        return np.where(is_in, places, -1)
