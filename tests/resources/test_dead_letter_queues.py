"""How a dead-letter queue is called that nobody has named."""

from partq.resources import parse_resources
from partq.resources.dead_letter_queues import default_name
from tests.resources.test_resources import GROUP, QUEUE


def test_the_default_name():
    assert default_name("orders", "workers") == "orders-workers-dlq"


def test_a_default_name_is_not_too_long_for_a_queue():
    name = default_name("q" * 45, "g" * 63)
    assert len(name) <= 45
    assert name.endswith("g-dlq")


def test_a_default_dead_letter_queue_is_never_the_queue_itself():
    """A name that is cut in the middle may be the one that the queue has already."""
    group_name = "g" * 60
    queue_name = default_name("orders-of-all-the-shops-of-this-country", group_name)
    target = default_name(queue_name, group_name)
    assert target != queue_name
    assert len(target) <= 45
    parse_resources(
        QUEUE.replace("orders", queue_name)
        + "---"
        + GROUP.replace("workers", group_name)
        + f"spec: {{queue: {queue_name}}}"
    )
