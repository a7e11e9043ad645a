"""What the commit of a change waits for."""

import pytest

from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.core.rescale.layout_steps import prepare
from partq.core.rescale.preparation import Preparation, waits_before_commit

FIRST, SECOND, ADDED = PartitionId(1, 0), PartitionId(1, 1), PartitionId(2, 2)
ALL_GROUPS = {each: {"workers"} for each in (FIRST, SECOND, ADDED)}


@pytest.mark.parametrize(
    ("lacks", "text"),
    [
        ({}, None),
        ({"outdated": ["b-0"]}, "earlier version: b-0"),
        ({"owned": [FIRST, SECOND]}, "without a broker: 2.2"),
        ({"named": {"workers", "late"}}, "every group: 2.2"),
        ({"groups": ALL_GROUPS | {FIRST: {"workers", "begun"}}}, "every group: 2.2"),
        ({"groups": {FIRST: {"workers"}, SECOND: {"workers"}}}, "every group: 2.2"),
        ({"unopened": [ADDED]}, None),
        ({"unopened": [SECOND]}, "not open: 1.1"),
    ],
    ids=["nothing", "version", "broker", "named", "begun", "record", "its own", "not open"],
)
def test_what_a_commit_waits_for(lacks, text):
    found = {"outdated": [], "owned": [*ALL_GROUPS], "groups": ALL_GROUPS, "named": {"workers"}}
    preparation = Preparation(**({**found, "unopened": []} | lacks))
    waits = waits_before_commit(prepare(Layout.first(2), 3), preparation)
    assert len(waits) == (text is not None)
    assert text is None or text in waits[0]
