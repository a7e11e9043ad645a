"""`startAt` of a group cannot be changed once it is made, whoever says so: server or operator."""

import pytest

from tests.kube.api_server.client import ApiError

QUEUE = "jobs"
CHANGES = [
    pytest.param({"startAt": "2026-02-01T12:00:00Z"}, id="another time"),
    pytest.param({"startAt": None}, id="none any more"),
    pytest.param({"startAt": None, "start": "Latest"}, id="another start in its place"),
]


@pytest.fixture(scope="module")
def group(stage):
    stage.start_operator()
    stage.apply_queue(QUEUE)
    stage.serve(QUEUE)
    stage.apply_group("workers", QUEUE, startAt="2026-01-31T12:00:00Z")
    return "workers"


def refusal_of(stage, group, spec):
    """Change fields of the group, and return what the server says against it; None: it takes it."""
    try:
        stage.kube.patch("ConsumerGroup", stage.namespace, group, {"spec": spec})
    except ApiError as error:
        return f"{error.status} {error}"
    return None


@pytest.mark.parametrize("change", CHANGES)
def test_a_group_that_is_made_begins_at_no_other_time(stage, group, change):
    """A server from 1.30 on refuses the change; with an older one the operator says what holds."""
    refusal = refusal_of(stage, group, change)
    if refusal is not None:
        assert refusal.startswith("422")
        assert "startAt counts when the group is made, not later" in refusal
        return
    condition = stage.wait_for("ConsumerGroup", group, "SpecValid", "False", "StartImmutable")
    assert condition["message"].endswith("2026-01-31T12:00:00.000Z holds")
    back = {"start": None, "startAt": "2026-01-31T12:00:00Z"}
    assert refusal_of(stage, group, back) is None
    stage.wait_for("ConsumerGroup", group, "SpecValid", "True")


def test_start_and_start_at_are_not_taken_together(stage, group):
    """As above: refused, or told by the operator."""
    refusal = refusal_of(stage, group, {"start": "Latest"})
    if refusal is not None:
        assert refusal.startswith("422")
        assert "expected start or startAt, not both" in refusal
        return
    condition = stage.wait_for("ConsumerGroup", group, "SpecValid", "False")
    assert "expected one of them" in condition["message"]
