"""The verdict finds every planted fault, and nothing where there is none."""

from itertools import count

import pytest

from partq.core.model import SLOT_COUNT, Cause
from partq.lab.verdict.journal import JournalReader, JournalWriter, in_order
from partq.lab.verdict.journal_rows import (
    JOINED,
    LANES,
    REVOKED,
    DeliveredRow,
    HeldRow,
    PublishedRow,
    line_of,
    parse_lines,
)
from partq.lab.verdict.judge import UNKNOWN_CAUSE, judge
from partq.lab.verdict.progress import RunProgress
from partq.lab.verdict.timeline import (
    ObservedRebalance,
    RecordedPause,
    RunChange,
    hit_live_traffic,
    measure,
)


def published(*messages):
    return [
        PublishedRow(at_ns=at, partition="1.0", offset=at, key=key, number=number)
        for at, (key, number) in enumerate(messages)
    ]


def delivered(*messages, epoch=1, cause=0, member="a", start=0):
    """Rows of one token; message (key, number) lies at the offset that counts it in its key."""
    return [
        DeliveredRow(
            at_ns=at,
            member=member,
            partition="1.0",
            offset=number,
            broker_epoch=1,
            epoch=epoch,
            cause=cause,
            key=key,
            number=number,
        )
        for at, (key, number) in zip(count(start), messages, strict=False)
    ]


K1, K2, K3, K4 = [("k", number) for number in range(1, 5)]
STORED = published(K1, K2, K3, K4)


def test_all_processed_once_and_in_order_is_good():
    verdict = judge(STORED, delivered(K1, K2, K3, K4))
    assert verdict.is_good
    assert (verdict.published, verdict.delivered, verdict.duplicates) == (4, 4, {})


@pytest.mark.parametrize(("rows", "lost", "foreign", "out_of_order", "duplicates"), [
    pytest.param(delivered(K1, K2, K3), 1, 0, 0, {}, id="the last one lost"),
    pytest.param(delivered(K1, K3, K4), 1, 0, 1, {}, id="one lost: what follows it has skipped"),
    pytest.param(delivered(K2, K3, K4), 1, 0, 1, {}, id="the first one lost"),
    pytest.param(delivered(), 4, 0, 0, {}, id="all lost"),
    pytest.param(delivered(K1, K3, K2, K4), 0, 0, 2, {}, id="two swapped"),
    pytest.param(delivered(K2, K1, K3, K4), 0, 0, 2, {}, id="the first two swapped"),
    pytest.param(delivered(K1, K2, K3, K4, ("k", 5)), 0, 1, 0, {}, id="one nobody published"),
    pytest.param(delivered(K1, K2, K3, K4, ("x", 1)), 0, 1, 0, {}, id="a key nobody published"),
    pytest.param(
        delivered(K1, K2, K2, K3, K4), 0, 0, 0, {UNKNOWN_CAUSE: 1}, id="twice under one token"
    ),
    pytest.param(
        [*delivered(K1, K2, K3), *delivered(K2, K3, K4, epoch=2, start=9)],
        0, 0, 0, {UNKNOWN_CAUSE: 2}, id="a newer token repeats without a cause",
    ),
    pytest.param(
        [*delivered(K1, K2, K3), *delivered(K2, K3, K4, epoch=2, cause=Cause.RELEASED, start=9)],
        0, 0, 0, {UNKNOWN_CAUSE: 2}, id="released is no excuse: it was not begun",
    ),
    pytest.param(
        [*delivered(K1, K2, K3, K4), *delivered(K4, epoch=2, cause=99, start=9)],
        0, 0, 0, {UNKNOWN_CAUSE: 1}, id="a cause that nobody knows",
    ),
    pytest.param(
        [
            *delivered(K1, K2, K3, K4),
            *[row._replace(offset=77, epoch=2, cause=Cause.NACK) for row in delivered(K4, start=9)],
        ],
        0, 0, 0, {UNKNOWN_CAUSE: 1}, id="stored twice: another place in the log",
    ),
])  # fmt: skip
def test_a_planted_fault_is_found(rows, lost, foreign, out_of_order, duplicates):
    verdict = judge(STORED, rows)
    assert (verdict.lost, verdict.foreign, verdict.out_of_order) == (lost, foreign, out_of_order)
    assert verdict.duplicates == duplicates
    assert not verdict.is_good
    assert verdict.findings


@pytest.mark.parametrize("cause", [
    Cause.FLOW_LOST, Cause.FORCED_COMMIT, Cause.BROKER_CHANGE, Cause.STORE_ROLLED_BACK,
    Cause.NACK, Cause.ACK_TIMEOUT,
])  # fmt: skip
def test_a_duplicate_with_a_cause_is_counted_under_it(cause):
    again = delivered(K2, K3, K4, epoch=2, cause=cause, member="b", start=9)
    verdict = judge(STORED, [*delivered(K1, K2, K3), *again])
    assert verdict.is_good
    assert verdict.duplicates == {cause.name.lower(): 2}


def test_a_first_processing_of_a_redelivery_is_no_duplicate():
    rows = [*delivered(K1, K2), *delivered(K3, K4, epoch=2, cause=Cause.FLOW_LOST, start=9)]
    assert judge(STORED, rows).duplicates == {}


def test_a_frozen_member_that_writes_late_is_explained_by_the_other_delivery():
    # `a` was frozen with K2 in hand; `b` got it again with a cause and was faster.
    other = delivered(K2, K3, K4, epoch=2, cause=Cause.FORCED_COMMIT, member="b", start=5)
    verdict = judge(STORED, [*delivered(K1), *other, *delivered(K2, start=20)])
    assert verdict.is_good
    assert verdict.duplicates == {"forced_commit": 1}


def worked(member, number, begun_ns, at_ns, epoch=1, cause=0):
    return DeliveredRow(
        at_ns, member, "1.0", number, 1, epoch, int(cause), "k", number, begun_ns=begun_ns
    )


def test_a_key_at_two_members_at_a_time_is_found():
    rows = [worked("a", 1, 10, 20), worked("b", 2, 15, 30), worked("a", 3, 30, 40)]
    verdict = judge(published(K1, K2, K3), rows)
    assert (verdict.overlapping, verdict.out_of_order, verdict.is_good) == (1, 0, False)
    assert "was begun" in verdict.findings[0]


def test_a_key_at_two_members_far_apart_in_its_numbers_is_found():
    """The one that was begun first is at work for longest."""
    rows = [worked("a", 1, 10, 90), worked("b", 2, 20, 30), worked("b", 3, 40, 50)]
    assert judge(published(K1, K2, K3), rows).overlapping == 2


def test_a_member_that_was_cut_off_may_still_be_at_work():
    """What it had came again under a later token: that one counts."""
    late = worked("a", 1, 10, 90)
    again = worked("b", 1, 20, 30, epoch=2, cause=Cause.FLOW_LOST)
    rows = [again, worked("b", 2, 40, 50, epoch=2), late]
    verdict = judge(published(K1, K2), rows)
    assert (verdict.overlapping, verdict.is_good) == (0, True)


def test_without_an_order_only_what_is_lost_or_repeated_without_a_cause_is_a_fault():
    rows = [*delivered(K2, K1, K4), *delivered(K3, member="b")]
    at_once = [row._replace(begun_ns=1, at_ns=9) for row in rows]
    assert not judge(STORED, at_once).is_good
    assert judge(STORED, at_once, has_order=False).is_good
    assert judge(STORED, at_once[1:], has_order=False).lost == 1
    assert judge(STORED, [*at_once, rows[0]], has_order=False).unknown == 1


def test_without_an_order_the_delivery_without_a_cause_is_the_first_one():
    """Whatever their tokens are: the member that gets a message again may have joined before."""
    again = delivered(K1, member="b", epoch=2, cause=Cause.FLOW_LOST)
    rows = [*delivered(K1, K2, K3, K4, epoch=7), *again]
    assert judge(STORED, rows, has_order=False).duplicates == {"flow_lost": 1}
    assert judge(STORED, rows).unknown == 1
    without = [*rows[:4], again[0]._replace(cause=0)]
    assert judge(STORED, without, has_order=False).unknown == 1


def test_a_key_may_begin_at_any_number():
    rows = [("k", 41), ("k", 42)]
    assert judge(published(*rows), delivered(*rows)).is_good
    assert judge(published(*rows), delivered(*reversed(rows))).out_of_order == 2


def test_a_message_that_was_confirmed_twice_counts_once():
    assert judge([*STORED, *STORED], delivered(K1, K2, K3, K4)).published == 4


def test_findings_are_bounded():
    stored = published(*[("k", number) for number in range(1, 1000)])
    verdict = judge(stored, [])
    assert verdict.lost == 999
    assert len(verdict.findings) == 20


def test_a_hundred_thousand_rows_are_judged_soon():
    """In about a second. Quadratic code would take hours: the limit of any test ends it."""
    messages = [(f"key-{index % 997}", index // 997) for index in range(100_000)]
    assert judge(published(*messages), delivered(*messages)).is_good


ROWS = [
    PublishedRow(1, "1.0", 0, "k", 1),
    DeliveredRow(2, "a", "1.0", 0, 7, 8, 0, 'tab\t, "quote" and ☃', 1),
    HeldRow(3, "a", "1.0", "assigned"),
]


def test_rows_survive_their_lines():
    data = b"".join(map(line_of, ROWS))
    assert parse_lines(data) == (ROWS, len(data))


def test_a_line_that_was_cut_off_is_left_for_later():
    data = b"".join(map(line_of, ROWS))
    assert parse_lines(data[:-5]) == (ROWS[:2], data.rindex(b"\n", 0, -1) + 1)
    assert parse_lines(b'["p",1') == ([], 0)
    assert parse_lines(b"") == ([], 0)


@pytest.mark.parametrize("line", [b"{}\n", b'["p",1]\n', b'["z",1]\n', b"what\n"])
def test_a_complete_line_that_is_no_row_is_an_error(line):
    with pytest.raises(ValueError, match=r"^journal: "):
        parse_lines(line)


def test_journals_are_read_while_they_grow(tmp_path):
    reader = JournalReader(tmp_path)
    with JournalWriter(tmp_path, "a") as writer:
        writer.write(ROWS[2])
        assert reader.read_new() == [ROWS[2]]
        writer.write(ROWS[0], ROWS[1])
        assert reader.read_new() == [ROWS[0], ROWS[1]]
    assert reader.read_new() == []
    assert in_order(JournalReader(tmp_path).read_new()) == ROWS


S = 1_000_000_000


def held(at_s, member, partition, change):
    return HeldRow(round(at_s * S), member, partition, change)


START = [
    held(0, "a", "1.0", "assigned"),
    held(0, "a", "1.1", "assigned"),
    held(0, "z", "1.2", "assigned"),
    held(0, "z", "1.3", "assigned"),
]


@pytest.mark.parametrize(("rows", "moved", "duration_ms", "longest_pause_ms"), [
    pytest.param([], 0, 0, 300, id="nothing followed"),
    pytest.param(
        [held(11, "a", "1.1", "revoked"), held(11.75, "b", "1.1", "assigned")],
        1, 1750, 750, id="lost, and somebody else's a moment later",
    ),
    pytest.param(
        [held(11.25, "b", "1.1", "assigned"), held(11.5, "a", "1.1", "revoked")],
        1, 1250, 300, id="a handoff that the consumers did not feel: the coordinator's word",
    ),
    pytest.param(
        [
            held(11, "b", "1.1", "assigned"),
            held(11.5, "a", "1.1", "revoked"),
            held(13, "b", "1.1", "revoked"),
            held(13.75, "c", "1.1", "assigned"),
        ],
        2, 3750, 750, id="late word of an older owner does not count",
    ),
    pytest.param(
        [held(16, "b", "1.2", "assigned"), held(16.5, "b", "1.3", "assigned")],
        2, 6500, 6500, id="a killed member's partitions pause from the kill on",
    ),
    pytest.param(
        [held(11.5, "z", "1.2", "assigned")], 0, 1500, 1500, id="the same member again: no move"
    ),
    pytest.param([held(30, "b", "1.0", "assigned")], 0, 0, 300, id="the next change's business"),
])  # fmt: skip
def test_what_a_change_did(rows, moved, duration_ms, longest_pause_ms):
    change = RunChange(trigger="t", at_ns=10 * S, until_ns=20 * S, killed="z")
    recorded = [
        RecordedPause(at_ns=at_s * S, longest_pause_ms=pause_ms)
        for at_s, pause_ms in [(9, 9000), (15, 300), (20, 9000)]
    ]
    assert measure(change, [*START, *rows], recorded) == ObservedRebalance(
        trigger="t", moved=moved, duration_ms=duration_ms, longest_pause_ms=longest_pause_ms
    )


@pytest.mark.parametrize(("published_s", "processed_s", "expected"), [
    pytest.param([9, 12], [9, 12], True, id="traffic on both sides"),
    pytest.param([9], [9, 12], False, id="publishing had ended"),
    pytest.param([12], [9, 12], False, id="publishing had not begun"),
    pytest.param([9, 12], [12], False, id="nothing was delivered before"),
    pytest.param([9, 12], [9, 19], True, id="the change took its time"),
    pytest.param([9, 12], [9, 21], False, id="nothing was delivered before the next change"),
    pytest.param([3, 12], [3, 12], False, id="the traffic had ended long before"),
    pytest.param([], [], False, id="no traffic at all"),
])  # fmt: skip
def test_live_traffic(published_s, processed_s, expected):
    change = RunChange(trigger="t", at_ns=10 * S, until_ns=20 * S)
    instants = [[at * S for at in side] for side in (published_s, processed_s)]
    assert hit_live_traffic(change, *instants) is expected


def test_progress_counts_messages_and_knows_owners_whatever_journal_is_read_first():
    progress = RunProgress()
    moved = [held(2, "b", "1.1", "assigned"), held(3, "a", "1.1", "revoked")]
    progress.add([*START, *reversed(moved)])
    assert {partition: owner.member for partition, owner in progress.owners.items()} == {
        "1.0": "a", "1.1": "b", "1.2": "z", "1.3": "z"
    }  # fmt: skip
    assert progress.is_balanced(["a", "b", "z"], 4)
    assert not progress.is_balanced(["a", "b", "z"], 5)
    assert progress.is_balanced(["a", "b"], 2, partitions={"1.0", "1.1"}), "the others are retired"
    assert not progress.is_balanced(["a", "b"], 3, partitions={"1.0", "1.1", "2.2"})
    assert not progress.is_balanced(["a", "b", "z", "idle"], 4)
    assert not progress.is_balanced(["a", "b"], 4)
    assert progress.handoff_count == 1

    progress.add([held(4, "b", "1.1", "revoked")])
    assert not progress.is_balanced(["a", "b", "z"], 4)
    progress.add([held(5, "b", "1.1", "assigned")])
    assert progress.is_balanced(["a", "b", "z"], 4)
    progress.drop_member("a")
    assert not progress.is_balanced(["a", "b", "z"], 4)
    assert progress.imbalance(["a", "b"]) == (
        "1.0 was at a; 1.2 is at z; 1.3 is at z; a has 0, b has 1"
    )

    progress.add([*STORED, *STORED, *delivered(K1, K2, K2)])
    assert (progress.published_count, progress.processed_count) == (4, 2)
    assert progress.lag() == {"1.0": 2}
    assert not progress.has_all
    progress.add(delivered(K3, K4))
    assert progress.has_all


def test_a_frozen_member_that_is_told_late_of_what_it_has_lost_does_not_become_the_owner():
    progress = RunProgress()
    moved = [held(2, "b", "1.1", "assigned"), held(2, "b", "1.0", "assigned")]
    progress.add([*START, *moved])
    # It wakes, loses its old flow, and reads what was sent to the new one before it was cut, too.
    woken = [("1.0", "revoked"), ("1.1", "revoked"), ("1.1", "assigned"), ("1.1", "revoked")]
    progress.add([held(3 + at / 10, "a", name, change) for at, (name, change) in enumerate(woken)])
    owners = {partition: owner.member for partition, owner in progress.owners.items()}
    assert owners == {"1.0": "b", "1.1": "b", "1.2": "z", "1.3": "z"}
    assert progress.is_balanced(["b", "z"], 4)
    progress.drop_member("b")
    assert not progress.is_balanced(["b", "z"], 4), "nobody else holds them"


def test_members_of_a_group_with_sessions_join_and_are_dropped():
    progress = RunProgress()
    progress.add([HeldRow(1, "a", "", JOINED), held(1, "b", "1.0", "assigned")])
    assert (progress.members, set(progress.owners)) == ({"a", "b"}, {"1.0"})
    progress.drop_member("a")
    assert progress.members == {"b"}


def test_slots_are_shared_out_once_all_are_at_members_that_run():
    def lanes(member, slots):
        return HeldRow(1, member, "1.0", LANES, slots)

    progress = RunProgress()
    progress.add([lanes("a", SLOT_COUNT)])
    assert progress.is_shared_out(["a"], 4096)
    assert not progress.is_shared_out(["a", "b"], 4096), "b has nothing"
    progress.add([lanes("a", SLOT_COUNT // 2), lanes("b", SLOT_COUNT // 2)])
    assert progress.is_shared_out(["a", "b"], 4096)
    progress.add([HeldRow(2, "b", "1.0", REVOKED)])
    assert not progress.is_shared_out(["a"], 4096), "half of them is at nobody"
    progress.add([lanes("c", SLOT_COUNT // 2)])
    assert not progress.is_shared_out(["a"], 4096), "c has not left"
    progress.drop_member("c")
    assert progress.imbalance(["a"]) == f"a has {SLOT_COUNT // 2} slots of 1.0"


def test_rows_of_an_earlier_version_lack_the_last_cells():
    rows, _ = parse_lines(b'["d",2,"a","1.0",0,7,8,0,"k",1]\n["h",3,"a","1.0","assigned"]\n')
    assert rows == [
        DeliveredRow(2, "a", "1.0", 0, 7, 8, 0, "k", 1),
        HeldRow(3, "a", "1.0", "assigned"),
    ]
