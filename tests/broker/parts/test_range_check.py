"""Where parts begin and end is computed for a layout, not for each member that binds."""

import pytest

from partq.broker.parts import range_check
from partq.broker.parts.range_check import RangeCheck
from partq.core.cursor.redelivery_rules import RedeliveryRules
from partq.core.layout import Layout
from partq.errors import BadRequestError


def test_bounds_are_computed_when_partitions_or_parts_differ(monkeypatch):
    computed = []

    def bounds_of(slots, parts):
        computed.append((len(slots), parts))
        return original(slots, parts)

    original = range_check.bounds_of
    monkeypatch.setattr(range_check, "bounds_of", bounds_of)
    now = {"layout": Layout.first(4), "parts": 8}
    check = RangeCheck(
        lambda: now["layout"], lambda group: RedeliveryRules(parts=now["parts"], takes_ranges=True)
    )

    def bind(stop):
        check.check("workers", "a", [(0, stop)], ())

    for _ in range(3):
        bind(65_536 // 32)
    assert computed == [(4, 8)]
    with pytest.raises(BadRequestError, match="next bounds are 0 and 2048"):
        bind(65_536 // 64)
    now["parts"] = 16
    bind(65_536 // 64)
    now["layout"] = Layout.first(8)
    bind(65_536 // 128)
    assert computed == [(4, 8), (4, 16), (8, 16)]
