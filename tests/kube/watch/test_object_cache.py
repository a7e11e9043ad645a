"""What the operator takes note of, and what makes it look again."""

import pytest

from partq.kube import names
from partq.kube.names import QueueKey
from partq.kube.watch.object_cache import GroupKey, ObjectCache
from tests.kube.bodies import group_body, queue_body

ORDERS = QueueKey("shop", "orders")


@pytest.fixture
def told():
    return []


@pytest.fixture
def cache(told):
    cache = ObjectCache(told.append)
    cache.put_queue(queue_body())
    cache.put_group(group_body())
    told.clear()
    return cache


def later(body, **changes):
    """Return a body as the server has it after a change."""
    metadata = {**body["metadata"], "resourceVersion": "8", **changes.pop("metadata", {})}
    return {**body, "metadata": metadata, **changes}


@pytest.mark.parametrize("body", [queue_body(), group_body()], ids=["queue", "group"])
@pytest.mark.parametrize(
    ("changes", "is_news"),
    [
        ({}, False),
        ({"status": {"conditions": []}}, False),
        ({"metadata": {"managedFields": [{"manager": "somebody"}]}}, False),
        ({"metadata": {"generation": 2}}, True),
        ({"metadata": {"annotations": {names.PAUSE_REBALANCE: "true"}}}, True),
        ({"metadata": {"deletionTimestamp": "2024-01-01T00:00:00Z"}}, True),
        ({"metadata": {"finalizers": [names.FINALIZER]}}, True),
        ({"metadata": {"uid": "ffff0000-1111-4222-8333-123456789abc"}}, True),
    ],
    ids=lambda value: "" if isinstance(value, bool) else str(value),
)
def test_a_status_is_no_news(cache, told, body, changes, is_news):
    put = cache.put_queue if body["kind"] == "PartitionedQueue" else cache.put_group
    put(later(body, **changes))
    assert told == ([ORDERS] if is_news else [])


def test_the_latest_status_is_known_all_the_same(cache):
    cache.put_queue(later(queue_body(), status={"groups": 1}))
    cache.put_group(later(group_body(), status={"phase": "Stable"}))
    assert cache.queue(ORDERS)["status"] == {"groups": 1}
    assert cache.groups(ORDERS)["workers"]["status"] == {"phase": "Stable"}


def test_what_is_older_changes_nothing(cache, told):
    cache.put_group(later(group_body(), status={"phase": "Stable"}))
    cache.put_group(group_body(strategy="range"))
    assert cache.groups(ORDERS)["workers"]["status"] == {"phase": "Stable"}
    assert told == []


def test_a_group_that_names_another_queue_is_news_for_both(cache, told):
    moved = later(group_body(queue="others"))
    cache.put_group(moved)
    assert told == [ORDERS, QueueKey("shop", "others")]
    assert cache.groups(ORDERS) == {}


def test_the_end_of_a_queue_and_a_group_is_news(cache, told):
    cache.drop_group(GroupKey("shop", "workers"))
    cache.drop_queue(ORDERS)
    assert told == [ORDERS, ORDERS]
    assert list(cache.queue_keys) == []
