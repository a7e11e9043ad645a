"""What `partq dev up`, `status`, `groups` and `explain` say of partitions that deliver nothing."""

from types import SimpleNamespace

import pytest

from partq.cli.hosting.block_watch import BlockWatch, missing_targets
from partq.cli.queues.explain import lines as explained
from partq.cli.queues.groups import row
from partq.cli.queues.status import render
from partq.core.group.partition_wait import PartitionWait, WaitsFor
from partq.core.group.planner import GroupRules
from partq.core.model import PartitionId
from partq.resources import group_document, queue_document, resources_of
from partq.wire.calls.replies import convert
from partq.wire.calls.state import GroupDetail
from partq.wire.calls.status import GroupStatus, PartitionStatus, QueueTotals, StatusAnswer

QUEUE = queue_document("a", partitions=2)
TARGET = queue_document("a-g-dlq", partitions=1)
REASON = "queue default/a-g-dlq: create the PartitionedQueue"
MISSING = "message 3 is not in the log, which continues at 5; reset the group there to 5 or above"


def limited(**spec):
    """Return a group that gives messages up."""
    return group_document("g", "a", ack={"maxRedeliveries": 3}, **spec)


def test_a_limit_without_a_dead_letter_queue_is_told_at_the_start():
    (warning,) = missing_targets(resources_of(QUEUE, limited()))
    assert "group g of default/a: ack.maxRedeliveries is 3, and its dead-letter queue" in warning
    assert "a-g-dlq is not in the file" in warning


@pytest.mark.parametrize(
    "documents",
    [[limited(deadLetter={"create": True})], [limited(), TARGET]],
    ids=["made", "there"],
)
def test_one_that_is_made_or_there_is_no_reason(documents):
    assert missing_targets(resources_of(QUEUE, *documents)) == []


def group(*, blocked="", dead_letters=0, members=()):
    partition = {
        "member": "", "epoch": 1, "state": "Unassigned", "cursor": 1, "lag": 0, "lag_ms": 0,
        "dead_letters": dead_letters, "blocked": blocked,
    }  # fmt: skip
    found = {
        "type": "Partitioned", "lag": 0, "lag_ms": 0, "members": list(members),
        "partitions": {"1.0": partition}, "handoffs": [], "waiting_moves": [],
    }  # fmt: skip
    return convert(found, GroupStatus)


def test_a_stop_is_told_once_and_its_end_once():
    watch = BlockWatch()
    stopped = {"g": group(blocked=REASON, dead_letters=1)}
    told = "queue default/a, group g: partition 1.0 delivers"
    said = [watch.read_news("default/a", each) for each in (stopped, stopped, {"g": group()}, {})]
    assert said == [
        [f"{told} nothing: {REASON}"], [], [f"{told} again"], []
    ]  # fmt: skip


def test_dead_letters_that_are_parked_are_told_once_and_their_end_once():
    watch = BlockWatch()
    waiting = group(dead_letters=1)
    waiting.partitions["1.0"].parked = REASON
    said = [watch.read_news("default/a", each) for each in ({"g": waiting}, {"g": waiting}, {})]
    told = "queue default/a, group g: partition 1.0 continues, and dead letters of it wait for"
    assert said == [[f"{told} their queue: {REASON}"], [], []]
    (end,) = watch.read_news("default/a", {"g": group()})
    assert end.endswith("partition 1.0 has no more dead letters that wait for their queue")


def test_groups_and_status_name_a_partition_that_dead_letters_stop():
    stopped = group(blocked=REASON, dead_letters=2)
    told = row("g", stopped)
    assert (told.state, told.dead_letters, told.blocked) == ("Blocked", 2, {"1.0": REASON})
    text = shown(stopped)
    assert f"partition 1.0 delivers nothing: {REASON}" in text
    assert "2 dead letters wait to be stored" in text


def test_a_message_that_the_log_does_not_hold_is_not_told_as_a_dead_letter():
    stopped = group(blocked=MISSING)
    (told,) = BlockWatch().read_news("default/a", {"g": stopped})
    for text in (told, shown(stopped)):
        assert f"partition 1.0 delivers nothing: {MISSING}" in text
        assert "dead letter" not in text


def test_explain_says_why_a_partition_delivers_nothing():
    partition = PartitionId(1, 0)
    detail = GroupDetail(
        state="Ready", lag=1, in_flight=0, cursor=1, dead_letters=1, blocked=REASON,
        member="m", epoch=5, attempt=0, is_bound=True,
    )  # fmt: skip
    ownership = SimpleNamespace(member="m", broker="b", epoch=5, broker_epoch=6)
    snapshot = SimpleNamespace(
        observation=SimpleNamespace(partitions={partition: ownership}), details={partition: detail},
        ends={partition: 2}, silent={}, past={}, refused={},
        rules=GroupRules(is_client_assigned=True),  # nobody stands by
    )  # fmt: skip
    waiting = PartitionWait(what=WaitsFor.DEAD_LETTERS)
    lines = [each.strip() for each in explained(partition, snapshot, waiting)]
    assert f"delivers nothing: {REASON}" in lines
    assert "1 dead letter waits to be stored in the dead-letter queue" in lines
    said = "waits for: its dead letters to be stored; until then it delivers nothing"
    assert said in lines

    detail.blocked = ""  # as in the first seconds
    lines = [each.strip() for each in explained(partition, snapshot, waiting)]
    (line,) = [each for each in lines if each.startswith("1 dead letter waits")]
    assert line.endswith("in the dead-letter queue; a reason that lasts is shown after 5 s")


def test_a_group_whose_last_member_has_left_is_empty():
    left = group(members=[{"member": "m", "partitions": 0, "state": "Left"}])
    told = row("g", left)
    assert (told.state, told.lost, told.blocked) == ("Empty", 0, {})
    assert "no member: nobody consumes" in shown(left)


def shown(group):
    from io import StringIO

    from rich.console import Console

    record = PartitionStatus("b", broker_epoch=1, first=0, end=1, bytes=1)
    answer = StatusAnswer(
        *("a", "default", {}, "Available", []),
        totals=QueueTotals(partitions=1, messages=1, bytes=1),
        partitions={"1.0": record},
        groups={"g": group},
    )
    console = Console(file=StringIO(), width=200)
    console.print(render(answer))
    return console.file.getvalue()
