"""How a dead-letter queue is called that nobody has named."""

from partq.resources.dead_letter_queues import default_name


def test_the_default_name():
    assert default_name("orders", "workers") == "orders-workers-dlq"


def test_a_default_name_is_not_too_long_for_a_queue():
    name = default_name("q" * 45, "g" * 63)
    assert len(name) <= 45
    assert name.endswith("g-dlq")
