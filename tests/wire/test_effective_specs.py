"""What the operator writes of a queue and its groups is what brokers read."""

import json

import pytest

from partq.errors import InternalError
from partq.resources import (
    effective_group,
    effective_queue,
    group_document,
    queue_document,
    resources_of,
)
from partq.wire.effective_specs import GroupSpec, QueueSpec, read_spec


def stored(spec):
    """Return a spec as the store gives it back."""
    return json.loads(json.dumps(spec))


def test_brokers_read_what_resources_say():
    backoff = {"minSeconds": 1, "maxSeconds": 8, "multiplier": 2}
    resources = resources_of(
        queue_document(
            "orders",
            partitions=4,
            audit=True,
            messageTTLSeconds=60,
            retentionSeconds=3600,
            duplicateDetection={"windowSeconds": 60},
            limits={"maxSpoolBytes": 2_000_000, "maxRetainedBytes": 1_500_000},
        ),
        group_document(
            "workers",
            "orders",
            ack={"timeoutSeconds": 9, "maxRedeliveries": 3},
            nack={"order": "Free", "delaySeconds": 1, "backoff": backoff},
        ),
    )
    (queue,), (group,) = resources.queues, resources.groups
    found = read_spec("queue", stored(effective_queue(queue, ["workers"])), QueueSpec)
    assert (found.keyless_policy, found.message_ttl_seconds, found.audit) == ("Random", 60, True)
    assert (found.limits.max_spool_bytes, found.limits.max_retained_bytes) == (2_000_000, 1_500_000)
    assert found.retention_seconds == 3600
    ids = found.duplicate_detection
    assert (ids.window_seconds, ids.max_ids_per_partition) == (60, 100_000)
    spec = stored(effective_group(group, queue))
    rules = read_spec("group", spec, GroupSpec)
    assert (rules.ack.timeout_seconds, rules.ack.max_redeliveries) == (9, 3)
    assert (rules.nack.order, rules.nack.backoff.max_seconds) == ("Free", 8)
    assert (rules.dead_letter.queue, rules.dead_letter.expired) == ("orders-workers-dlq", False)
    spec["ack"]["maxSpan"] = 30_000  # an earlier version took it in any order
    assert read_spec("group", spec, GroupSpec).ack.max_span == 30_000


def test_what_an_earlier_version_wrote_is_read():
    limits = {"maxMessageBytes": 1, "maxUnackedPerFlow": 2}
    found = read_spec("queue", {"keylessPolicy": "Random", "limits": limits}, QueueSpec)
    assert (found.limits.max_spool_bytes, found.message_ttl_seconds, found.audit) == (
        (None, None, False)
    )
    assert (found.limits.max_retained_bytes, found.retention_seconds) == (None, 0)
    assert found.duplicate_detection is None
    assert read_spec("group", {"type": "Partitioned"}, GroupSpec) == GroupSpec(type="Partitioned")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"keylessPolicy": "Random"}, "limits: got nothing"),
        ({"keylessPolicy": "Random", "limits": {"maxMessageBytes": "1"}}, "limits.maxMessageBytes"),
    ],
)
def test_a_spec_that_is_none_is_named(spec, says):
    with pytest.raises(InternalError, match=f"queue: the stored spec is unusable: {says}"):
        read_spec("queue", spec, QueueSpec)
