"""`startAt`: which times say where a new group begins, and what is said of all others."""

import re

import pytest

from partq.errors import SettingsError
from partq.resources import effective_group, parse_resources
from tests.resources.test_resources import EXAMPLE, QUEUE, group

EXPECTED = "expected a time from 1970 on with a time zone, such as 2026-01-31T12:00:00Z"


def begins(spec):
    """Return a document of a group with these fields beside its queue."""
    return group(f"{{queue: orders, {spec}}}")


@pytest.mark.req("PUL-134")
@pytest.mark.parametrize("quoted", ["2026-01-31T12:00:00.250Z", '"2026-01-31T13:00:00.250+01:00"'])
def test_a_group_may_begin_at_a_time(quoted):
    read = parse_resources(begins(f"startAt: {quoted}"))
    effective = effective_group(read.groups[0], read.queues[0])
    assert (effective["start"], effective["startAtMs"]) == ("Earliest", 1_769_860_800_250)
    assert "startAt" not in effective


def test_the_example_of_a_start_is_one():
    text = (EXAMPLE.parents[1] / "docs" / "resources.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n(apiVersion[^`]*startAt:[^`]*)```", text)
    read = parse_resources(example + "---" + QUEUE)
    assert read.groups[0].spec.start_at_ms == 1_769_860_800_000


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        pytest.param("yesterday", "'yesterday'", id="no time"),
        pytest.param("7", "7", id="a number"),
        pytest.param("2026-01-31", "'2026-01-31'", id="a day"),
        pytest.param("2026-01-31T12:00:00", "'2026-01-31T12:00:00'", id="no time zone"),
        pytest.param('"2026-01-31T12:00:00"', "'2026-01-31T12:00:00'", id="none, as a text"),
        pytest.param('"2026-02-31T12:00:00Z"', "'2026-02-31T12:00:00Z'", id="no such day"),
        pytest.param('"1969-12-31T23:59:59Z"', "'1969-12-31T23:59:59Z'", id="too early"),
    ],
)
def test_another_text_is_refused_with_an_example(given, shown):
    with pytest.raises(SettingsError) as caught:
        parse_resources(begins(f"startAt: {given}"))
    assert caught.value.message.endswith(f"spec.startAt: got {shown}, {EXPECTED}")


def test_start_and_start_at_are_refused_together():
    with pytest.raises(SettingsError, match="expected one of them") as caught:
        parse_resources(begins("start: Earliest, startAt: 2026-01-31T12:00:00Z"))
    assert "got 'Earliest' and startAt '2026-01-31T12:00:00+00:00'" in caught.value.message
