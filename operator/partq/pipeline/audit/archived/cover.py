"""Ranges of offsets laid over each other: what covers each stretch, with nothing per offset."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Layer(NamedTuple):
    """A range of one kind."""

    first: int
    stop: int
    kind: int
    number: int = 0
    """Is summed up over the ranges of its kind: where one covers, the sum is its number."""


class CoveredRange(NamedTuple):
    """Offsets that the same ranges cover."""

    first: int
    stop: int
    counts: tuple[int, ...]
    """How many ranges of each kind cover it."""
    sums: tuple[int, ...]
    """Of each kind, the sum of their numbers."""


def cover(layers: Iterable[Layer], kind_count: int) -> Iterator[CoveredRange]:
    """Yield the stretches between the ends of ranges that at least one covers, in order."""
    points: dict[int, list[tuple[int, int, int]]] = {}
    for layer in layers:
        if layer.first < layer.stop:
            points.setdefault(layer.first, []).append((layer.kind, 1, layer.number))
            points.setdefault(layer.stop, []).append((layer.kind, -1, -layer.number))
    counts, sums = [0] * kind_count, [0] * kind_count
    before: int | None = None
    for at in sorted(points):
        if before is not None and any(counts):
            yield CoveredRange(before, at, tuple(counts), tuple(sums))
        for kind, step, number in points[at]:
            counts[kind] += step
            sums[kind] += number
        before = at
