"""Cuts batches of the record so that all lines of one sequence come together."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from partq.pipeline.audit.judge.lines import RecordLine, lines_of


def whole_sequences(batches: Iterable[pa.RecordBatch]) -> Iterator[list[RecordLine]]:
    """Yield the lines of batches, in lists that end with the last line of a sequence."""
    waiting: list[RecordLine] = []
    for batch in batches:
        waiting += lines_of(batch)
        if not waiting:
            continue
        last = waiting[-1].sequence
        cut = len(waiting)
        while cut and waiting[cut - 1].sequence == last:
            cut -= 1
        if cut:
            yield waiting[:cut]
            del waiting[:cut]
    if waiting:
        yield waiting
