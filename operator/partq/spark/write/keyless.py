"""Slots for rows without a key: of the place of a row in its task, so the same at every attempt."""

import hashlib

import numpy as np
import numpy.typing as npt

from partq.core.layout import Layout
from partq.core.model import SLOT_COUNT

Slots = npt.NDArray[np.uint16]


class KeylessSlots:
    """Chooses slots by the queue's policy, without chance: a retried task chooses the same.

    Whether a partition is available plays no part, unlike in `Producer`: a row waits for its
    partition's broker.

    Args:
        seed: names the task; others spread their rows in another way.
        layout: of the queue.
        policy: `Random` or `RoundRobin`.
    """

    def __init__(self, seed: str, layout: Layout, policy: str) -> None:
        digest = hashlib.blake2b(seed.encode(), digest_size=8).digest()
        self._seed = np.uint64(int.from_bytes(digest, "little"))
        self._is_random = policy == "Random"
        slots = [
            np.concatenate([np.arange(each.start, each.stop) for each in layout.slots(partition)])
            for partition in layout.current_partitions
        ]
        self._sizes = np.array([len(slots) for slots in slots], np.uint64)
        self._firsts = np.cumsum(self._sizes) - self._sizes
        self._all = np.concatenate(slots).astype(np.uint16)
        self._taken = 0

    def take(self, count: int) -> Slots:
        """Return the slots of the next `count` rows without a key."""
        numbers = np.arange(self._taken, self._taken + count, dtype=np.uint64)
        self._taken += count
        drawn = _mixed(numbers + self._seed)
        if self._is_random:
            return (drawn & np.uint64(SLOT_COUNT - 1)).astype(np.uint16)
        # Tasks that start together do not march in step.
        turn = (numbers + self._seed % np.uint64(len(self._sizes))) % np.uint64(len(self._sizes))
        slots: Slots = self._all[self._firsts[turn] + drawn % self._sizes[turn]]
        return slots


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Spread numbers over 64 bits: the finalizer of SplitMix64, which is a bijection."""
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
