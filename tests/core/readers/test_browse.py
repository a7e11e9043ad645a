"""Pages of several partitions become one, in the order in which messages were stored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.model import PartitionId
from partq.core.readers.browse import Page, PageEnd, PageRow, merge


def page(*times, why=PageEnd.END, first=0):
    """A page whose messages were stored at these times; each is shown by its time and offset."""
    rows = [PageRow(at, at_ms, 10, (at_ms, at)) for at, at_ms in enumerate(times, first)]
    return Page(rows, first + len(times), why)


def merged(*pages, max_messages=100, max_bytes=10**6, before_ms=None):
    named = {PartitionId(1, index): each for index, each in enumerate(pages)}
    found = merge(named, max_messages=max_messages, max_bytes=max_bytes, before_ms=before_ms)
    times = [at_ms for at_ms, _ in found.contents]
    return times, [found.next[partition] for partition in named], found.why


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            merged(page(1, 4), page(2, 3)), ([1, 2, 3, 4], [2, 2], PageEnd.END), id="all of it"
        ),
        pytest.param(
            merged(page(1, 4), page(2, 3), max_messages=2),
            ([1, 2], [1, 1], PageEnd.ENOUGH),
            id="as many as were asked for",
        ),
        pytest.param(
            merged(page(1, 4), page(2, 3), max_bytes=25),
            ([1, 2], [1, 1], PageEnd.SIZE),
            id="too large",
        ),
        pytest.param(
            merged(page(1), max_bytes=1),
            ([1], [1], PageEnd.END),
            id="one that is too large is shown",
        ),
        pytest.param(
            merged(page(1, 4, 9), page(2, 3, why=PageEnd.SIZE)),
            ([1, 2, 3], [1, 2], PageEnd.SIZE),
            id="what follows the end of a page may be older",
        ),
        pytest.param(
            merged(page(1, 4), before_ms=3), ([1], [1], PageEnd.SIZE), id="partitions not read yet"
        ),
        pytest.param(merged(), ([], [], PageEnd.END), id="no partition"),
        pytest.param(merged(page(), page()), ([], [0, 0], PageEnd.END), id="nothing in them"),
    ],
)
def test_merge(found, expected):
    assert found == expected


LOG = st.lists(st.integers(0, 30), max_size=12).map(sorted)


@given(
    logs=st.lists(LOG, min_size=1, max_size=4),
    max_messages=st.integers(1, 5),
    max_bytes=st.integers(1, 60),
    page_size=st.integers(1, 4),
    at_once=st.integers(1, 4),
)
def test_page_by_page_every_message_is_shown_once_by_its_time(
    logs, max_messages, max_bytes, page_size, at_once
):
    """As a broker reads: of so many partitions at once, those with the oldest messages."""
    places = dict.fromkeys(range(len(logs)), 0)
    shown = []
    for _ in range(200):
        heads = sorted((logs[p][at], p) for p, at in places.items() if at < len(logs[p]))
        pages = {}
        for _, p in heads[:at_once]:
            at, end = places[p], len(logs[p])
            stop = min(end, at + page_size)
            why = PageEnd.END if stop == end else PageEnd.SIZE
            pages[PartitionId(1, p)] = page(*logs[p][at:stop], why=why, first=at)
        found = merge(
            pages,
            max_messages=max_messages,
            max_bytes=max_bytes,
            before_ms=heads[at_once][0] if len(heads) > at_once else None,
        )
        assert len(found.contents) <= max_messages
        shown += [at_ms for at_ms, _ in found.contents]
        places |= {partition.index: at for partition, at in found.next.items()}
        if found.why is PageEnd.END or (found.why is PageEnd.ENOUGH and not found.contents):
            break
    assert shown == sorted(at_ms for log in logs for at_ms in log)
