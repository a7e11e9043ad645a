"""Lists: each namespace by itself, and nothing dropped on a guess."""

import pytest

from partq.kube.errors import KubernetesError
from partq.kube.names import QueueKey
from partq.kube.watch import parse
from partq.kube.watch.object_cache import ObjectCache
from partq.kube.watch.relist import PODS_S, Relister
from tests.kube.bodies import group_body, pod_body, queue_body
from tests.kube.fake_api import FakeApi

ROOT = "/apis/partq.dev/v1alpha1"
SHOP, BANK = QueueKey("shop", "orders"), QueueKey("bank", "orders")


class ListApi(FakeApi):
    """Lists by path."""

    def put(self, namespace, *, queues=(), groups=(), pods=()):
        scope = f"namespaces/{namespace}/" if namespace else ""
        self.objects[f"{ROOT}/{scope}partitionedqueues"] = {"items": list(queues)}
        self.objects[f"{ROOT}/{scope}consumergroups"] = {"items": list(groups)}
        self.objects[f"/api/v1/{scope}pods"] = {"items": list(pods)}


@pytest.fixture
def api():
    return ListApi()


@pytest.fixture
def cache():
    return ObjectCache(lambda key: None)


async def test_what_is_no_longer_listed_is_gone(api, cache, clock):
    lister = Relister(api, cache, [], clock)
    api.put("", queues=[queue_body()], groups=[group_body()], pods=[pod_body()])
    await lister.refresh()
    assert cache.queue_keys == {SHOP}
    assert list(cache.groups(SHOP)) == ["workers"]
    api.put("", pods=[pod_body()])
    await lister.refresh()
    assert cache.queue_keys == set()


async def test_a_pod_whose_end_no_watch_told_is_gone_in_the_end(api, cache, clock):
    lister = Relister(api, cache, [], clock)
    pod = parse.pod(pod_body())
    api.put("", pods=[pod_body()])
    await lister.refresh()
    assert cache.pod(pod.uid) == pod
    api.put("")
    await lister.refresh()
    assert cache.pod(pod.uid) == pod, "pods are many: they are not listed each time"
    clock.now += PODS_S
    await lister.refresh()
    assert (cache.pod(pod.uid), cache.gone_pod(pod.uid)) == (None, pod)


@pytest.mark.parametrize("plural", ["partitionedqueues", "consumergroups", "pods"])
async def test_one_namespace_that_is_forbidden_stops_no_other(api, cache, clock, plural):
    lister = Relister(api, cache, ["bank", "shop"], clock)
    api.put("bank", queues=[queue_body(namespace="bank")])
    api.put("shop", queues=[queue_body()])
    root = "/api/v1" if plural == "pods" else ROOT
    api.broken = {f"{root}/namespaces/bank/{plural}"}
    await lister.refresh()
    assert cache.queue_keys == {SHOP}
    cache.put_queue(queue_body(namespace="bank"))
    assert cache.queue_keys == {SHOP}, "a watch that tells of it does not complete the picture"

    api.broken.clear()
    await lister.refresh()
    assert cache.queue_keys == {SHOP, BANK}
    api.broken = {f"{ROOT}/namespaces/bank/partitionedqueues"}
    api.put("bank")
    await lister.refresh()
    assert cache.queue_keys == {SHOP, BANK}, "nothing is dropped on a guess"


async def test_without_any_namespace_it_is_said(api, cache, clock):
    lister = Relister(api, cache, ["bank", "shop"], clock)
    api.broken = {"*"}
    with pytest.raises(KubernetesError):
        await lister.refresh()


async def test_an_answer_that_is_no_list_empties_nothing(api, cache, clock):
    """A proxy's page, with status 200."""
    lister = Relister(api, cache, [], clock)
    api.put("", queues=[queue_body()], groups=[group_body()])
    await lister.refresh()
    api.objects[f"{ROOT}/consumergroups"] = {"message": "Please log in"}
    with pytest.raises(KubernetesError, match=r"not a list.*log in"):
        await lister.refresh()
    assert list(cache.groups(SHOP)) == ["workers"]


async def test_a_pod_that_goes_while_the_rest_is_listed_stays_gone(api, cache, clock):
    lister = Relister(api, cache, [], clock)
    api.put("", pods=[pod_body()])
    await lister.refresh()
    pod = parse.pod(pod_body())
    ending = parse.pod(pod_body(deletion_grace=30))
    cache.put_pod(ending)
    cache.drop_pod(ending)
    clock.now += PODS_S
    await lister.refresh()
    assert cache.pod(pod.uid) is None
    cache.drop_pod(pod)  # as a look that began before its end
    assert cache.gone_pod(pod.uid).has_ended
