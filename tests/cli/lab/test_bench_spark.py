"""How `partq bench spark` judges its audit."""

import pytest

from partq.cli.lab.bench_spark import require_clean
from partq.errors import InternalError
from partq.pipeline.audit.verdict import AuditTotals, AuditVerdict
from partq.pipeline.audit.verdict import FindingCount as Finding


def verdict(*found, **changed):
    counts = {"published": 9, "delivered": 9, "acknowledged": 9, "archived": 9, **changed}
    totals = AuditTotals(
        partitions=1, records=1, dead_lettered=0, expired=0, from_ms=0, until_ms=1, **counts
    )
    return AuditVerdict(totals=totals, found=found)


def test_a_clean_audit_of_every_row_passes():
    require_clean(verdict(Finding("log", "archive_behind", "warning", 1)), 9)


@pytest.mark.parametrize(
    ("judged", "message"),
    [
        (verdict(Finding("loss", "lost", "fault", 2)), "verdict is faults found: lost 2"),
        (verdict(Finding("chain", "missing_range", "fault", 1)), "incomplete: missing_range 1"),
        (verdict(acknowledged=8), "'acknowledged': 8.*expected 9 of each"),
        (verdict(archived=None), "'archived': None.*expected 9 of each"),
    ],
)
def test_a_bench_whose_audit_is_not_clean_fails(judged, message):
    with pytest.raises(InternalError, match=message):
        require_clean(judged, 9)
