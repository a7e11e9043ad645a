"""What a program declares is what a person would have written."""

import pytest

from partq.errors import SettingsError
from partq.resources import (
    group_document,
    parse_resources,
    queue_document,
    resources_of,
    yaml_of,
)

WRITTEN = """
apiVersion: partq.dev/v1alpha1
kind: PartitionedQueue
metadata: {name: orders}
spec: {partitions: 4, limits: {maxMessageBytes: 4096}}
---
apiVersion: partq.dev/v1alpha1
kind: ConsumerGroup
metadata: {name: workers}
spec: {queue: orders, start: Earliest}
"""
DOCUMENTS = (
    queue_document("orders", partitions=4, limits={"maxMessageBytes": 4096}),
    group_document("workers", "orders", start="Earliest"),
)


def test_they_are_the_same():
    assert resources_of(*DOCUMENTS) == parse_resources(WRITTEN)
    assert parse_resources(yaml_of(*DOCUMENTS)) == parse_resources(WRITTEN)


def test_a_field_that_nobody_knows_is_refused_as_in_a_file():
    """Of the names of the parameters, too: they are fields of the spec."""
    with pytest.raises(SettingsError, match=r"spec.name: got an unknown field"):
        resources_of(queue_document("orders", name="letters"))
