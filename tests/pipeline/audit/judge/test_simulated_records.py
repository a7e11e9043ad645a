"""The judge is silent on the records of simulated brokers, whatever fails."""

import pytest

from partq.core.group.planner import GroupType
from partq.lab.simulate.processes.coordinators import KEYS
from partq.pipeline.audit.judge.lines import RecordLine
from partq.pipeline.audit.judge.record import RecordJudge
from tests.audit_record import decode_group
from tests.lab.simulate.test_audit import FAULTS, FEATURES, groups_of, partitions_of, run

SHARED = {
    "group_type": GroupType.KEY_SHARED, "nack_order": "Key", "parts": 4, "ack_timeout_s": 0.0,
    "pull_share": 0.0, "is_client_assigned": False,
}  # fmt: skip
TURNS = {
    "group_type": GroupType.SHARED, "nack_order": "Free", "pull_share": 0.0,
    "is_client_assigned": False,
}  # fmt: skip

SESSIONS = {
    "group_type": GroupType.SESSION, "nack_order": "Key", "pull_share": 0.0,
    "is_client_assigned": False, "has_letters": False, "on_exhausted": "Skip", "lock_s": 2.0,
}  # fmt: skip


def lines_of(memory, partition):
    return [
        RecordLine(*(getattr(record, name) for name in RecordLine._fields))
        for group in groups_of(memory, KEYS.audit(partition))
        for record in decode_group(str(partition), group)
    ]


# In 7 and 11 a group is removed, and a broker that has not noticed yet delivers to it.
@pytest.mark.parametrize(
    ("seed", "setting"),
    [
        *((1, {}), (2, {}), (7, {}), (11, {}), (0, {"nack_order": "Key"})),
        *((seed, SHARED) for seed in (3, 5)),
        *((seed, TURNS) for seed in (5, 11)),
        *((seed, SESSIONS) for seed in (1, 3, 5)),
    ],
)
def test_what_simulated_brokers_record_is_clean(seed, setting):
    outcome, memory = run(seed, only=FAULTS | FEATURES, **setting)
    found, judged = [], 0
    for partition in partitions_of(outcome):
        judge = RecordJudge(str(partition), is_from_start=True)
        lines = lines_of(memory, partition)
        judge.judge(lines)
        judged += judge.finish().totals.records
        found += [each for each in judge.findings if each.severity == "fault"]

    assert found == []
    assert judged > 50
