"""A group of the type Shared and one of the type Session on the same queue, scaled under load."""

import time
from collections.abc import Mapping
from typing import Any

import pytest

from e2e import manifests
from e2e.figures import Figures
from e2e.nodes import Nodes
from e2e.stage import Stage
from partq.lab.verdict.journal_rows import DeliveredRow, PublishedRow

pytestmark = pytest.mark.timeout(600)

PARTITIONS = 2
KEYS = 32
AT_A_TIME = 8
"""Sessions that each member works on."""


def test_members_get_any_message_in_one_group_and_lock_sessions_in_another(
    stage: Stage, nodes: Nodes, figures: Figures
) -> None:
    publishing = ("--per-s", "60", "--keys", str(KEYS))
    stage.make(partitions=PARTITIONS, group={"type": "Shared"})
    arguments = (*manifests.CAN_BE_HELD, "--sessions", str(AT_A_TIME))
    spec = {"type": "Session", "session": {"lockSeconds": 6}}
    clerks = stage.make_beside("clerks", "session_consumer", **spec)
    stage.start_traffic(3, "--work-ms", "20", publishing=publishing)
    clerks.start_consumers(3, *arguments)
    clerks.await_traffic()

    began = time.monotonic()
    for each in (stage, clerks):
        each.scale(6)
    for each in (stage, clerks):
        each.await_shared(6)
    figures.add(
        "from `kubectl scale` 3 to 6 members of groups of the types Shared and Session to Ready",
        f"{time.monotonic() - began:.1f} s",
    )
    clerks.hold()
    counts = {"withMessages": KEYS, "locked": KEYS, "waiting": 6 * AT_A_TIME - KEYS}
    clerks.eventually(lambda: clerks.group_status().get("sessions") == counts, f"sessions {counts}")
    # What the clerks have written down last is not acknowledged: it will be processed twice.
    member = [row for row in clerks.rows() if isinstance(row, DeliveredRow)][-1].member
    (clerk,) = [pod for pod in clerks.pods() if member.startswith(pod["metadata"]["uid"])]
    crash(nodes, stage.pods()[0], clerk)
    clerks.let_go()
    # All are busy now: what was published meanwhile waits for the clerks.
    crash(nodes, stage.pods()[1], clerks.pods()[1])
    for each in (stage, clerks):
        each.await_shared(6)
        each.await_traffic()

    for each in (stage, clerks):
        each.scale(2)
    for each in (stage, clerks):
        each.await_pods(2)
        each.await_shared(2)
        each.await_traffic()

    verdicts = [stage.close(), clerks.judge()]
    figures.add(
        "repeats by cause, in a Shared and a Session group of which two members each were killed",
        ", ".join(str(each.duplicates) for each in verdicts),
    )
    assert verdicts[1].duplicates["flow_lost"] > 0
    published = [row for row in clerks.rows() if isinstance(row, PublishedRow)]
    last = max(published, key=lambda row: row.number)
    assert clerks.printed("sessions", "state", last.key, "--group", "clerks") == str(last.number)


def crash(nodes: Nodes, *pods: Mapping[str, Any]) -> None:
    """Kill what runs in pods, and wait until it runs again."""
    nodes.kill(*pods)
    for pod in pods:
        nodes.await_again(pod)
