"""Offsets of messages: which ones a delivery has, and as ranges."""

from collections.abc import Sequence
from itertools import compress, pairwise

from partq.wire.frames import Deliver, Range

_DIGITS = bytes.maketrans(b"01", b"\x00\x01")


def join_ranges(ranges: list[Range]) -> list[Range]:
    """Return the same offsets as the fewest ranges, sorted."""
    if len(ranges) < 2:
        return ranges
    joined: list[Range] = []
    for first, stop in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], stop))
        else:
            joined.append((first, stop))
    return joined


def ranges_of(offsets: Sequence[int]) -> list[Range]:
    """Return ascending offsets as the fewest ranges."""
    if not offsets:
        return []
    first, last = offsets[0], offsets[-1]
    if last - first + 1 == len(offsets):
        return [(first, last + 1)]
    gaps = [each for each in pairwise(offsets) if each[1] != each[0] + 1]
    starts = [first, *(after for _, after in gaps)]
    stops = [*(before + 1 for before, _ in gaps), last + 1]
    return list(zip(starts, stops, strict=True))


def window_size(frame: Deliver) -> int:
    """Return how many messages a delivery counts for."""
    if frame.mask:
        return len(delivered_offsets(frame))
    return frame.stop - frame.start - sum(stop - first for first, stop in frame.skip)


def delivered_offsets(frame: Deliver) -> Sequence[int]:
    """Return the offsets of the messages of a delivery."""
    if frame.mask:
        return list(compress(range(frame.start, frame.stop), _flags(frame)))
    if not frame.skip:
        return range(frame.start, frame.stop)
    skipped = {offset for first, stop in frame.skip for offset in range(first, stop)}
    return [offset for offset in range(frame.start, frame.stop) if offset not in skipped]


def _flags(frame: Deliver) -> bytes:
    """Return a byte for each message of a window: 1 if the mask has it, else 0."""
    digits = f"{int.from_bytes(frame.mask, 'little'):0{frame.stop - frame.start}b}"
    return digits.encode().translate(_DIGITS)[::-1]
