"""What a worker measures of its queue's groups."""

from dataclasses import replace

from partq.coordinator.view import SessionTotals
from partq.core.model import PartitionId
from partq.kube.names import QueueKey
from partq.kube.reconcile.groups import Groups
from partq.kube.watch.object_cache import ObjectCache
from tests.kube.facts import group_view, queue_view


class Store:
    async def lags(self, group, partitions):
        return {PartitionId(1, 0): 7}


async def test_sessions_are_looked_at_with_the_lag():
    groups = Groups(ObjectCache(lambda key: None), QueueKey("shop", "orders"))
    groups._specs = {"clerks": {"type": "Session"}, "workers": {}, "new": {"type": "Session"}}
    views = {
        "clerks": replace(group_view(), sessions=SessionTotals(5, 2, 3)),
        "workers": group_view(),
    }
    await groups.measure(Store(), replace(queue_view(), groups=views))
    assert groups.lag == {"clerks": 7, "workers": 7, "new": 7}
    assert groups.sessions == {"clerks": (5, 2, 3)}
