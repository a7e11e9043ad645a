"""Counts, for each handoff, the keys whose messages lie on both sides of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from partq.pipeline.audit.judge.outcome import OwnedRange

MAX_KEYS = 2_000_000
"""Keys of a group in a partition that are told apart; where there are more, none are counted."""

Line = tuple[int, str]
"""A segment of the record, and a group."""


@dataclass(slots=True)
class _KeyOwner:
    ranges: list[tuple[int, int]] = field(default_factory=list)
    keys: set[int] = field(default_factory=set)


class ContinuedKeys:
    """Follows which owner was done with which key.

    A message belongs to the owner that acknowledged it.

    Args:
        owned: what each owner acknowledged, of groups that had several.
    """

    def __init__(self, owned: Iterable[OwnedRange]) -> None:
        self._open: dict[Line, dict[int, _KeyOwner]] = {}
        for each in owned:
            owners = self._open.setdefault((each.segment, each.group), {})
            owners.setdefault(each.commit_at, _KeyOwner()).ranges.append((each.first, each.stop))
        for owners in self._open.values():
            for owner in owners.values():
                owner.ranges.sort(reverse=True)
        self._seen: dict[Line, set[int]] = {line: set() for line in self._open}
        self._counts: dict[tuple[str, int], int] = {}

    @property
    def wants_keys(self) -> bool:
        """Whether there is anything to count."""
        return bool(self._open)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take messages, in the order of their offsets."""
        offsets = batch.column("offset").to_numpy(zero_copy_only=False)
        if not self._open or not len(offsets):
            return
        keys = batch.column("key")
        if not pa.types.is_dictionary(keys.type):
            keys = pc.dictionary_encode(keys)
        codes = keys.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        names = np.array([hash(key) for key in keys.dictionary.to_pylist()], np.int64)
        for line in list(self._open):
            self._add(line, offsets, codes, names)

    def finish(self) -> Mapping[tuple[str, int], int]:
        """Return group and line of a commit → keys with messages of an earlier owner, too."""
        for line, owners in self._open.items():
            for commit_at in sorted(owners):
                self._close(line, commit_at, owners[commit_at])
        self._open = {}
        return self._counts

    def _add(
        self,
        line: Line,
        offsets: "np.ndarray[tuple[int], np.dtype[np.int64]]",
        codes: "np.ndarray[tuple[int], np.dtype[np.int32]]",
        names: "np.ndarray[tuple[int], np.dtype[np.int64]]",
    ) -> None:
        owners, last = self._open[line], int(offsets[-1])
        for owner in owners.values():
            while owner.ranges and owner.ranges[-1][0] <= last:
                first, stop = owner.ranges[-1]
                low, high = np.searchsorted(offsets, [first, stop])
                if low < high:
                    found = np.unique(codes[low:high])
                    owner.keys.update(names[found[found >= 0]].tolist())
                if stop > last + 1:
                    break
                owner.ranges.pop()
        if sum(map(len, (self._seen[line], *(each.keys for each in owners.values())))) > MAX_KEYS:
            del self._open[line], self._seen[line]
            return
        # An owner counts once nothing can come of it or of those before it.
        for commit_at in sorted(owners):
            if owners[commit_at].ranges:
                break
            self._close(line, commit_at, owners.pop(commit_at))

    def _close(self, line: Line, commit_at: int, owner: _KeyOwner) -> None:
        seen = self._seen[line]
        continued = len(owner.keys & seen)
        if continued:
            self._counts[line[1], commit_at] = continued
        seen |= owner.keys
