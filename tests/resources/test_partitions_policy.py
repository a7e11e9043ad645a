"""`partitionsPolicy` of a queue bounds its number of partitions."""

import pytest

from partq.errors import SettingsError
from partq.resources import effective_queue, queue_document, resources_of


@pytest.mark.parametrize(
    ("partitions", "policy", "problem"),
    [
        (24, {"min": 8, "max": 24}, None),
        (16, {}, None),
        (25, {"max": 24}, "partitions: got 25, expected 1 to 24, which partitionsPolicy has"),
        (7, {"min": 8}, "partitions: got 7, expected 8 to 4096"),
        (16, {"mode": "Apply"}, "Advise"),
    ],
)
def test_the_number_of_partitions_keeps_to_its_policy(partitions, policy, problem):
    document = queue_document("orders", partitions=partitions, partitionsPolicy=policy)
    if problem is None:
        (queue,) = resources_of(document).queues
        assert queue.spec.partitions == partitions
        assert "partitionsPolicy" not in effective_queue(queue, ())
        return
    with pytest.raises(SettingsError, match=problem):
        resources_of(document)
