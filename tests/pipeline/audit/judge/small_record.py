"""Records of a few lines, and what the judge makes of them."""

from partq.pipeline.audit.judge.lines import RecordLine
from partq.pipeline.audit.judge.record import RecordJudge
from tests.pipeline.audit.model import Group, Line, Partition

BEGIN = ("begin", 0, {"group": "", "stop": 0})
OWNER = [
    BEGIN,
    ("begin", 0, {"member": ""}),
    ("commit", 0, {"member": "", "target": "a", "epoch": 1}),
]
"""The partition is given to member `a`, under epoch 1."""


def lines_of(*told, since=0):
    """Return the lines of a record: kinds, when they were written in ms, and their fields.

    Each is a group of its own, by one broker. `since`: the groups before it are missing.
    """
    run = Partition("1.0", seed=1)
    run.record = []
    for kind, at_ms, fields in told:
        given = {"group": "workers", "member": "a", "epoch": 1, "first": 0, "stop": 0}
        if kind in ("publish", "trim", "claim"):
            given = {"first": 0, "stop": 0, "append_broker_epoch": 1}
        run.record.append(Group(at_ms, "broker-0", 1, [Line(kind, b"", given | fields)]))
    return read_lines(run, since)


def read_lines(run, since=0):
    """Return what a partition of the model has recorded, as the judge reads it."""
    return [
        RecordLine(**{name: getattr(row, name) for name in RecordLine._fields})
        for row in run.rows(since)
    ]


def judged(lines, *, is_from_start=True):
    """Return what the lines come to, and the findings."""
    judge = RecordJudge("1.0", is_from_start=is_from_start)
    judge.judge(sorted(lines, key=lambda line: (line.sequence, line.place)))
    return judge.finish(), judge.findings


def found(*told, since=0):
    """Return which kinds of findings a record comes to; without its beginning: of the rest."""
    _, findings = judged(lines_of(*told, since=since), is_from_start=not since)
    return [each.what for each in findings]


def publish(at_ms, first, stop):
    return ("publish", at_ms, {"first": first, "stop": stop})


def deliver(at_ms, first, stop, **fields):
    return ("deliver", at_ms, {"first": first, "stop": stop} | fields)


def ack(at_ms, first, stop, **fields):
    return ("ack", at_ms, {"first": first, "stop": stop} | fields)
