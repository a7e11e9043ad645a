"""Tells Kubernetes which pods of a Deployment cost least to remove: those that hold least.

A hint, by the annotation that ReplicaSets read when they are scaled down. Pods are ranked by how
many partitions they hold; what is in flight is no part of it, for it changes with every message.
Only a rank that has changed, and has stayed for a while, is written.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from partq.kube import names
from partq.kube.api import KubeApi, pod_path
from partq.kube.errors import KubernetesError
from partq.kube.names import QueueKey
from partq.kube.watch.object_cache import ObjectCache
from partq.kube.watch.parse import Pod

ROUND_S: Final = 5.0
"""How often ranks are compared; one is written that two comparisons in a row have found."""
MAX_WRITES: Final = 20
"""How many pods are changed at most in one round."""
REFUSED_S: Final = 600.0
"""How long a namespace is left alone in which the operator may not change pods."""

HeldCounts = Mapping[str, int]
"""Pod, by uid → how many partitions its members hold."""

_log = logging.getLogger(__name__)


def ranks(held_counts: HeldCounts, pods: Iterable[Pod]) -> dict[str, int]:
    """Rank pods among those of their ReplicaSet or Deployment: 0 holds least; equals are equal.

    Rank, not number: a change that is equal for all pods changes no rank. Left out are pods that
    terminate, pods without a ReplicaSet, and those whose cost another client has set.
    """
    by_owner: dict[tuple[str, str], list[Pod]] = defaultdict(list)
    for pod in pods:
        is_ours = pod.deletion_cost == pod.our_deletion_cost
        if pod.replica_set and not pod.is_terminating and is_ours:
            by_owner[pod.namespace, pod.deployment or pod.replica_set].append(pod)
    found: dict[str, int] = {}
    for group in by_owner.values():
        levels = sorted({held_counts.get(pod.uid, 0) for pod in group})
        found |= {pod.uid: levels.index(held_counts.get(pod.uid, 0)) for pod in group}
    return found


class DeletionCosts:
    """Writes the ranks of all queues' pods; `run` continues until cancelled."""

    def __init__(
        self,
        api: KubeApi,
        cache: ObjectCache,
        *,
        is_leading: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._cache = cache
        self._is_leading = is_leading
        self._clock = clock
        self._held_counts: dict[QueueKey, HeldCounts] = {}
        self._wanted: dict[str, int] = {}
        """The ranks that the last round found."""
        self._refused_until: dict[str, float] = {}

    def note(self, key: QueueKey, held_counts: HeldCounts) -> None:
        """Take note of what the pods of a queue's groups hold now; those with nothing have 0."""
        self._held_counts[key] = held_counts

    def forget(self, key: QueueKey) -> None:
        """Take note that a queue is gone."""
        self._held_counts.pop(key, None)

    async def run(self) -> None:
        """Compare and write until cancelled."""
        while True:
            await asyncio.sleep(ROUND_S)
            await self.compare()

    async def compare(self) -> None:
        """Compare once, and write what has changed and stayed."""
        if not self._is_leading():
            self._held_counts.clear()
            self._wanted.clear()
            return
        total: dict[str, int] = defaultdict(int)
        for held_counts in self._held_counts.values():
            for uid, count in held_counts.items():
                total[uid] += count
        pods = [pod for uid in total if (pod := self._cache.pod(uid)) is not None]
        before, self._wanted = self._wanted, ranks(total, pods)
        due = [
            pod
            for pod in pods
            if (rank := self._wanted.get(pod.uid)) is not None
            and before.get(pod.uid) == rank
            and (pod.deletion_cost or "0") != str(rank)
            and self._may_write(pod.namespace)
        ]
        await asyncio.gather(*(self._write(pod, self._wanted[pod.uid]) for pod in due[:MAX_WRITES]))

    def _may_write(self, namespace: str) -> bool:
        return self._clock() >= self._refused_until.get(namespace, 0.0)

    async def _write(self, pod: Pod, rank: int) -> None:
        annotations = {names.DELETION_COST: str(rank), names.OUR_DELETION_COST: str(rank)}
        # The uid is part of it: another pod of the name is not meant.
        body = {"metadata": {"uid": pod.uid, "annotations": annotations}}
        try:
            await self._api.merge(pod_path(pod.namespace, pod.name), body)
        except KubernetesError as error:
            if error.status == 403 and self._may_write(pod.namespace):
                _log.warning("%s; pods have no deletion cost there", error)
                self._refused_until[pod.namespace] = self._clock() + REFUSED_S
            elif error.status != 403:
                _log.info("the deletion cost of a pod could not be written: %s", error)
