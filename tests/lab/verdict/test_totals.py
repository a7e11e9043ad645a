"""A run in parts is judged as the whole would be, while the rows of old parts are dropped."""

import pytest

from partq.core.model import Cause
from partq.lab.verdict.journal import JournalReader, JournalWriter
from partq.lab.verdict.journal_rows import LOCKED, DeliveredRow, LockRow, PublishedRow, StateRow
from partq.lab.verdict.judge import UNKNOWN_CAUSE, judge
from partq.lab.verdict.progress import RunProgress
from partq.lab.verdict.totals import RunTotals


def published(part, *numbers):
    return [PublishedRow(number, "1.0", number, f"{part}/k", number) for number in numbers]


def delivered(part, *numbers, epoch=1, cause=0):
    return [
        DeliveredRow(number, "a", "1.0", number, 1, epoch, cause, f"{part}/k", number)
        for number in numbers
    ]


FIRST, LAST = 0, 3


def books_of(parts, keep_parts=2):
    """Judge `parts`, each a list of rows; return the books, their progress and each verdict."""
    progress = RunProgress()
    books = RunTotals(progress, keep_parts=keep_parts)
    verdicts = []
    for part, rows in enumerate(parts):
        books.begin(f"{part}/")
        progress.add(rows)
        verdicts.append(books.judge_part())
    return books, progress, verdicts


def good(part):
    return [*published(part, 1, 2, 3), *delivered(part, 1, 2, 3)]


def test_sessions_are_judged_with_their_part_and_dropped_with_it():
    def worked(part, lock):
        rows = [row._replace(begun_ns=row.number) for row in good(part) if len(row) > 7]
        named = f"{part}/k"
        states = [StateRow(at, "a", named, at, at - 1) for at in (1, 2, 3)]
        return [*published(part, 1, 2, 3), LockRow(0, "a", named, lock, LOCKED), *rows, *states]

    stolen = [*worked(1, 1), LockRow(2, "b", "1/k", 1, LOCKED)]
    books, progress, verdicts = books_of([worked(0, 1), stolen, worked(2, 1), worked(3, 1)], 1)
    assert [each.session_faults for each in verdicts] == [0, 3, 0, 0]
    assert [each.is_good for each in verdicts] == [True, False, True, True]
    assert books.total().session_faults == 3
    assert {row.session for row in progress.of_sessions} == {"3/k"}


def test_late_repeats_of_a_group_without_an_order_are_judged_by_their_cause():
    progress = RunProgress()
    books = RunTotals(progress, keep_parts=0, has_order=False)
    books.begin("0/")
    progress.add([*published(0, 1), *delivered(0, 1, epoch=5)])
    books.judge_part()
    progress.add(delivered(0, 1, epoch=3, cause=Cause.FLOW_LOST))
    assert books.total().duplicates == {"flow_lost": 1}


def test_the_total_of_parts_is_the_verdict_over_all_rows():
    parts = [
        [*good(0), *delivered(0, 3, epoch=2, cause=Cause.FLOW_LOST)],
        [*published(1, 1, 2, 3), *delivered(1, 1, 3)],
        [*good(2), *delivered(2, 2, epoch=2)],
        [*published(3, 1), *delivered(3, 1, 2)],
    ]
    books, _, verdicts = books_of(parts, keep_parts=1)
    rows = [row for part in parts for row in part]
    whole = judge(
        [row for row in rows if isinstance(row, PublishedRow)],
        [row for row in rows if isinstance(row, DeliveredRow)],
    )
    total = books.total()
    assert {*total.findings} == {*whole.findings}
    assert total.duplicates == whole.duplicates == {"flow_lost": 1, UNKNOWN_CAUSE: 1}
    for name in ("published", "delivered", "lost", "foreign", "out_of_order"):
        assert getattr(total, name) == getattr(whole, name)
        assert getattr(total, name) == sum(getattr(each, name) for each in verdicts)
    assert (total.lost, total.foreign, total.out_of_order) == (1, 1, 1)


def test_only_the_last_parts_keep_their_rows():
    parts = [good(part) for part in range(20)]
    books, progress, _ = books_of(parts, keep_parts=2)
    assert len(progress.deliveries) == len(progress.published) == progress.published_count == 2 * 3
    assert progress.processed_count == 2 * 3
    assert (books.total().published, books.total().delivered) == (60, 60)


@pytest.mark.parametrize("part", [pytest.param(FIRST, id="closed"), pytest.param(LAST, id="open")])
@pytest.mark.parametrize(
    ("late", "duplicates"),
    [
        pytest.param({"epoch": 2, "cause": Cause.FLOW_LOST}, {"flow_lost": 1}, id="with a cause"),
        pytest.param({"epoch": 2, "cause": 0}, {UNKNOWN_CAUSE: 1}, id="without a cause"),
        pytest.param({"epoch": 1, "cause": Cause.FLOW_LOST}, {UNKNOWN_CAUSE: 1}, id="same token"),
    ],
)
def test_a_repeat_that_comes_after_its_part_was_judged_counts(part, late, duplicates):
    books, progress, verdicts = books_of([good(part) for part in range(LAST + 1)])
    assert all(each.is_good for each in verdicts)
    progress.add(delivered(part, 2, **late))
    total = books.total()
    assert total.duplicates == duplicates
    assert total.is_good == (UNKNOWN_CAUSE not in duplicates)
    assert bool(total.findings) != total.is_good


def test_a_closed_message_that_comes_twice_more_under_one_token_has_no_cause():
    books, progress, _ = books_of([good(part) for part in range(4)])
    progress.add(delivered(0, 1, 1, epoch=2, cause=Cause.FLOW_LOST))
    assert books.total().duplicates == {"flow_lost": 1, UNKNOWN_CAUSE: 1}


def test_what_belongs_to_no_part_is_foreign_and_a_part_that_is_under_way_is_left_out():
    books, progress, _ = books_of([good(0)])
    books.begin("1/")
    progress.add([*published(1, 1, 2), *delivered(1, 1)])
    assert books.total().is_good
    progress.add(delivered("x", 1))
    assert books.total().foreign == 1


def test_journals_of_ended_processes_are_removed_once_they_are_old(tmp_path):
    for name in ("old", "new"):
        with JournalWriter(tmp_path, name) as journal:
            journal.write(*published(0, 100 if name == "old" else 300))
    (own,) = {path.name.split(".")[1] for path in tmp_path.iterdir()}
    with JournalWriter(tmp_path, "silent"):
        pass
    reader = JournalReader(tmp_path)
    assert len(reader.read_new()) == 2

    reader.remove_ended([int(own)], before_ns=200)
    assert len(list(tmp_path.iterdir())) == 3, "their process runs"
    reader.remove_ended([], before_ns=200)
    assert [path.name for path in tmp_path.iterdir()] == [f"new.{own}.journal"]
    assert reader.read_new() == []
