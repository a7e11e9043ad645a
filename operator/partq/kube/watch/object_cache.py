"""What the operator knows of the cluster: queues, groups and pods, as last reported.

Watches fill it in. A watch that was broken misses deletions, so everything is listed now and then,
and a worker looks again at the pods of lost members.
"""

import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, cast

from partq.errors import SettingsError
from partq.kube import names
from partq.kube.bodies import Body, BodyMetadata, Manifest
from partq.kube.names import QueueKey
from partq.kube.watch import parse
from partq.kube.watch.nodes import KubeNode
from partq.kube.watch.parse import Pod
from partq.kube.watch.rollout import Ages
from partq.resources import ConsumerGroup, Selector

MAX_GONE = 20_000
"""How many pods that are gone are remembered; older ones are forgotten."""


class GroupKey(NamedTuple):
    """Namespace and name of a group."""

    namespace: str
    name: str


class KnownNames(NamedTuple):
    """Names at one time: what a list that begins then does not find is gone."""

    queues: frozenset[QueueKey]
    groups: frozenset[GroupKey]
    pods: frozenset[str]
    """By uid."""


class ObjectCache:
    """Bodies and pods by name; `on_change` hears which queue is concerned."""

    def __init__(
        self, on_change: Callable[[QueueKey], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._on_change = on_change
        self._clock = clock
        self._complete: set[str] = set()
        self._queues: dict[QueueKey, Body] = {}
        self._groups: dict[GroupKey, Body] = {}
        self._by_queue: dict[QueueKey, set[GroupKey]] = defaultdict(set)
        self._selectors: dict[GroupKey, Selector] = {}
        self._pods: dict[str, Pod] = {}
        self._by_namespace: dict[str, dict[str, Pod]] = defaultdict(dict)
        self._matching: dict[GroupKey, list[Pod]] = {}
        """Each group's pods, until a pod or the selector changes."""
        self._nodes: dict[str, KubeNode] = {}
        self._seen_at: dict[str, float] = {}
        self._ending_at: dict[str, float] = {}
        self._by_name: dict[tuple[str, str], str] = {}
        self._gone: OrderedDict[str, Pod] = OrderedDict()

    def complete(self, scope: str) -> None:
        """Take note that everything of a namespace was listed; "": of the whole cluster.

        Until then none of its queues has a worker: an incomplete list does not show what is gone.
        """
        if scope not in self._complete:
            self._complete.add(scope)
            for key in self.queue_keys:
                if scope in ("", key.namespace):
                    self._on_change(key)

    def known(self, scope: str) -> KnownNames:
        """Return the names that are known now of a namespace; "": of the whole cluster."""
        return KnownNames(
            frozenset(key for key in self._queues if scope in ("", key.namespace)),
            frozenset(key for key in self._groups if scope in ("", key.namespace)),
            frozenset(self._by_namespace.get(scope, ()) if scope else self._pods),
        )

    # ---- queues and groups ----------------------------------------------------------------------

    @property
    def queue_keys(self) -> Collection[QueueKey]:
        """Every queue that exists or that a group names, where everything has been listed."""
        keys = self._queues.keys() | {key for key, groups in self._by_queue.items() if groups}
        return {key for key in keys if not self._complete.isdisjoint(("", key.namespace))}

    def queue(self, key: QueueKey) -> Body | None:
        """Return a queue's body."""
        return self._queues.get(key)

    def groups(self, key: QueueKey) -> dict[str, Body]:
        """Return the bodies of the groups that name a queue, by their names."""
        found = sorted(self._by_queue.get(key, ()))
        return {group.name: self._groups[group] for group in found}

    def put_queue(self, body: Body) -> None:
        """Take note of a queue that is new or has changed."""
        key = parse.queue_key(body)
        before = self._queues.get(key)
        if is_older(body, before):
            return
        self._queues[key] = _slim(body)
        if not _says_the_same(body, before):
            self._on_change(key)

    def drop_queue(self, key: QueueKey) -> None:
        """Take note that a queue is gone."""
        if self._queues.pop(key, None) is not None:
            self._on_change(key)

    def put_group(self, body: Body) -> None:
        """Take note of a group that is new or has changed."""
        key = GroupKey(body["metadata"]["namespace"], body["metadata"]["name"])
        known = self._groups.get(key)
        if is_older(body, known):
            return
        before = self._queue_of(key)
        self._groups[key] = _slim(body)
        if _says_the_same(body, known):
            return
        after = self._queue_of(key)
        if before != after and before is not None:
            self._by_queue[before].discard(key)
            self._on_change(before)
        try:
            selector = parse.group(body).spec.selector
        except SettingsError:
            selector = None  # the worker reports it; the last valid selector stays
        if selector is not None and self._selectors.get(key) != selector:
            self._selectors[key] = selector
            self._matching.pop(key, None)
        if after is not None:
            self._by_queue[after].add(key)
            self._on_change(after)

    def drop_group(self, key: GroupKey) -> None:
        """Take note that a group is gone."""
        queue = self._queue_of(key)
        self._groups.pop(key, None)
        self._selectors.pop(key, None)
        self._matching.pop(key, None)
        if queue is not None:
            self._by_queue[queue].discard(key)
            self._on_change(queue)

    def selector(self, namespace: str, group: str) -> Selector | None:
        """Return the selector of a group; None: its spec has never been valid."""
        return self._selectors.get(GroupKey(namespace, group))

    def _queue_of(self, key: GroupKey) -> QueueKey | None:
        body = self._groups.get(key)
        return parse.queue_of_group(body) if body is not None else None

    # ---- pods -----------------------------------------------------------------------------------

    def pod(self, uid: str) -> Pod | None:
        """Return a pod that is there."""
        return self._pods.get(uid)

    def pod_named(self, namespace: str, name: str) -> Pod | None:
        """Return the pod of a name that is there."""
        return self._pods.get(self._by_name.get((namespace, name), ""))

    def gone_pod(self, uid: str) -> Pod | None:
        """Return a pod that is gone, as it was last seen."""
        return self._gone.get(uid)

    def brokers(self, key: QueueKey) -> list[Pod]:
        """Return a queue's broker pods."""
        pods = self._by_namespace.get(key.namespace, {}).values()
        return [pod for pod in pods if pod.labels.get(names.QUEUE_LABEL) == key.name]

    def members(self, namespace: str, group: str) -> list[Pod]:
        """Return the pods that a group's selector matches."""
        key = GroupKey(namespace, group)
        selector = self._selectors.get(key)
        if selector is None:
            return []
        if key not in self._matching:
            pods = self._by_namespace.get(namespace, {}).values()
            self._matching[key] = [pod for pod in pods if selector.matches(pod.labels)]
        return self._matching[key]

    def ages(self, pod: Pod) -> Ages:
        """Return how long a pod has been known, and for how long as ending."""
        now = self._clock()
        return Ages(
            pod_s=now - self._seen_at.get(pod.uid, now),
            ending_s=now - self._ending_at.get(pod.uid, now),
        )

    def put_node(self, name: str, node: KubeNode | None) -> None:
        """Take note of a node; None: it is gone."""
        if node == self._nodes.get(name):
            return
        if node is None:
            del self._nodes[name]
        else:
            self._nodes[name] = node
        for key in {
            key for pod in self._pods.values() if pod.node == name for key in self._queues_of(pod)
        }:
            self._on_change(key)

    def is_shed(self, pod: Pod) -> bool:
        """Whether a pod's node is about to be emptied of it; where nodes are not known: no."""
        node = self._nodes.get(pod.node)
        return node is not None and node.sheds(pod.tolerations)

    def put_pod(self, pod: Pod) -> None:
        """Take note of a pod that is new or has changed."""
        before = self._pods.get(pod.uid)
        if before is not None and before.is_terminating:
            # Its grace period is 0 at the very end, but the pod is terminating all the same.
            pod = replace(pod, is_terminating=True, grace_s=before.grace_s)
        if before == pod:
            return
        self._pods[pod.uid] = self._by_namespace[pod.namespace][pod.uid] = pod
        self._seen_at.setdefault(pod.uid, self._clock())
        if pod.is_terminating:
            self._ending_at.setdefault(pod.uid, self._clock())
        self._by_name[pod.namespace, pod.name] = pod.uid
        self._gone.pop(pod.uid, None)
        self._notify(pod)

    def drop_pod(self, pod: Pod) -> None:
        """Take note that a pod is gone; `pod`: as it was at its end."""
        before = self._pods.pop(pod.uid, None)
        self._by_namespace[pod.namespace].pop(pod.uid, None)
        self._seen_at.pop(pod.uid, None)
        self._ending_at.pop(pod.uid, None)
        told = self._gone.get(pod.uid)
        # A watch and a look at the pod both report the end; the later report may be the older one.
        if (before is not None and before.is_terminating) or (told is not None and told.has_ended):
            pod = replace(pod, has_ended=True)
        if self._by_name.get((pod.namespace, pod.name)) == pod.uid:
            del self._by_name[pod.namespace, pod.name]
        self._gone[pod.uid] = pod
        if len(self._gone) > MAX_GONE:
            self._gone.popitem(last=False)
        self._notify(pod)

    def _notify(self, pod: Pod) -> None:
        for group in [key for key in self._matching if key.namespace == pod.namespace]:
            del self._matching[group]
        for key in set(self._queues_of(pod)):
            self._on_change(key)

    def _queues_of(self, pod: Pod) -> Iterator[QueueKey]:
        if queue := pod.labels.get(names.QUEUE_LABEL):
            yield QueueKey(pod.namespace, queue)
        for group, selector in self._selectors.items():
            if group.namespace == pod.namespace and selector.matches(pod.labels):
                queue_key = self._queue_of(group)
                if queue_key is not None:
                    yield queue_key


def group_models(bodies: Mapping[str, Body]) -> tuple[dict[str, ConsumerGroup], dict[str, str]]:
    """Return the groups that can be read, and what is wrong with the others."""
    models, problems = {}, {}
    for name, body in bodies.items():
        try:
            models[name] = parse.group(body)
        except SettingsError as error:
            problems[name] = error.message
    return models, problems


def is_older(body: Body, known: Body | None) -> bool:
    """Say whether a body is not newer than another one that is known of the same object.

    A list may end after a watch has reported a later state. Versions that are not numbers are not
    compared.
    """
    if known is None or known["metadata"].get("uid") != body["metadata"].get("uid"):
        return False
    versions = [each["metadata"].get("resourceVersion", "") for each in (body, known)]
    if not all(version.isdecimal() for version in versions):
        return False
    return int(versions[0]) <= int(versions[1])


def _says_the_same(body: Body, known: Body | None) -> bool:
    """Say whether nothing but the status differs, which the operator itself has written.

    A look for every written status would look at all groups of the queue, and find nothing new.
    """
    return known is not None and _said(body) == _said(known)


def _said(body: Body) -> Manifest:
    metadata = {k: v for k, v in _slim(body)["metadata"].items() if k != "resourceVersion"}
    return {**{k: v for k, v in body.items() if k != "status"}, "metadata": metadata}


def _slim(body: Body) -> Body:
    """Return a body without the parts that the operator does not read, often most of it."""
    metadata = {k: v for k, v in body["metadata"].items() if k != "managedFields"}
    return {**body, "metadata": cast(BodyMetadata, metadata)}
