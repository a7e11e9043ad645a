"""The end of a queue: in order, repeated where it must be, and over whatever happens."""

import pytest

from partq.errors import StoreUnavailableError
from partq.kube.api import queue_path
from partq.kube.errors import KubernetesError
from partq.kube.names import FINALIZER, QueueKey
from partq.kube.objects import deletion
from partq.kube.objects.deletion import PODS_LIMIT_S, STORE_LIMIT_S, Deletion
from partq.kube.watch import parse
from partq.kube.watch.object_cache import ObjectCache
from tests.kube.bodies import UID, pod_body, queue_body
from tests.kube.fake_api import FakeApi

KEY = QueueKey("shop", "orders")
PATH = queue_path(*KEY)
SET = "/apis/apps/v1/namespaces/shop/statefulsets/orders-broker"


class FakeStore:
    def __init__(self):
        self.done = []
        self.is_away = False

    async def bury(self):
        self._do("bury")

    async def erase(self):
        self._do("erase")
        return 42

    async def release(self, *, keeps_data):
        self._do(f"release {keeps_data}")

    def _do(self, what):
        if self.is_away:
            raise StoreUnavailableError("no answer")
        self.done.append(what)


@pytest.fixture
def api():
    api = FakeApi()
    body = queue_body()
    body["metadata"]["finalizers"] = ["other", FINALIZER]
    api.objects[PATH] = body
    owner = {"ownerReferences": [{"uid": UID}]}
    api.objects[SET] = {"metadata": {"uid": "set", "resourceVersion": "1", **owner}}
    return api


@pytest.fixture
def cache():
    return ObjectCache(lambda key: None)


@pytest.fixture
def store():
    return FakeStore()


@pytest.fixture
def told():
    return []


@pytest.fixture
def end(api, cache, clock):
    return Deletion(api, cache, KEY, clock)


def broker_pod(cache):
    pod = parse.pod(pod_body("orders-broker-0", labels={"partq.dev/queue": "orders"}))
    cache.put_pod(pod)
    return pod


async def test_everything_in_order(api, cache, store, end, told):
    body = api.objects[PATH]
    pod = broker_pod(cache)
    is_over = await end.step(body, store, keeps_data=False, tell=told.append)
    assert not is_over, "a broker still writes"
    assert store.done == ["bury"]
    assert SET not in api.objects

    cache.drop_pod(pod)
    is_over = await end.step(body, store, keeps_data=False, tell=told.append)
    assert is_over
    assert store.done == ["bury", "erase", "release False"]
    assert [note.reason for note in told] == ["DataRemoved"]
    assert api.objects[PATH]["metadata"]["finalizers"] == ["other"]


async def test_retained(api, store, end, told):
    is_over = await end.step(api.objects[PATH], store, keeps_data=True, tell=told.append)
    assert is_over
    assert store.done == ["bury", "release True"]
    assert [note.reason for note in told] == ["DataRetained"]


async def test_a_stateful_set_of_somebody_else_stays(api, store, end, told):
    api.objects[SET]["metadata"]["ownerReferences"] = []
    assert await end.step(api.objects[PATH], store, keeps_data=False, tell=told.append)
    assert SET in api.objects


async def test_a_store_that_is_away_holds_it_up_for_a_while_only(api, clock, store, end, told):
    store.is_away = True
    body = api.objects[PATH]
    assert not await end.step(body, store, keeps_data=False, tell=told.append)
    assert not await end.step(body, None, keeps_data=False, tell=told.append)
    clock.now += STORE_LIMIT_S
    is_over = await end.step(body, None, keeps_data=False, tell=told.append)
    assert is_over
    (note,) = told
    assert (note.reason, note.is_warning) == ("FinalizerReleased", True)
    assert FINALIZER not in api.objects[PATH]["metadata"]["finalizers"]


async def test_a_store_that_comes_back_is_cleared(api, clock, store, end, told):
    store.is_away = True
    body = api.objects[PATH]
    assert not await end.step(body, store, keeps_data=False, tell=told.append)
    store.is_away = False
    clock.now += STORE_LIMIT_S / 2
    assert await end.step(body, store, keeps_data=False, tell=told.append)
    assert store.done == ["bury", "erase", "release False"]


async def test_pods_that_stay_hold_it_up_for_a_while_only(api, cache, clock, store, end, told):
    broker_pod(cache)
    clock.now += PODS_LIMIT_S
    assert await end.step(api.objects[PATH], store, keeps_data=False, tell=told.append)


async def test_a_stateful_set_that_cannot_be_removed_holds_it_up_for_a_while_only(
    api, clock, store, end, told
):
    """As when the operator's Role went first, with the namespace."""
    body = api.objects[PATH]
    api.broken.add(SET)
    with pytest.raises(KubernetesError):
        await end.step(body, store, keeps_data=False, tell=told.append)
    clock.now += PODS_LIMIT_S
    assert await end.step(body, store, keeps_data=False, tell=told.append)
    assert [note.reason for note in told] == ["FinalizerReleased", "DataRemoved"]
    assert "orders-broker" in told[0].text
    assert api.objects[PATH]["metadata"]["finalizers"] == ["other"]


async def test_a_queue_that_has_changed_since_it_was_read_is_held_as_it_is_now(api):
    body = queue_body()
    body["metadata"]["resourceVersion"] = "older"
    api.objects[PATH]["metadata"]["finalizers"] = ["other"]
    assert await deletion.hold(api, body) is True
    assert api.objects[PATH]["metadata"]["finalizers"] == ["other", FINALIZER], "not overwritten"


@pytest.mark.parametrize(
    "change", [{"uid": "the next life"}, {"deletionTimestamp": "2026-11-20T11:00:00Z"}]
)
async def test_a_queue_that_goes_is_not_held(api, change):
    body = queue_body()
    body["metadata"]["resourceVersion"] = "older"
    api.objects[PATH]["metadata"] |= {"finalizers": ["other"], **change}
    assert await deletion.hold(api, body) is False
    assert api.objects[PATH]["metadata"]["finalizers"] == ["other"]


async def test_the_next_life_of_a_name_keeps_its_finalizer(api):
    body = queue_body()
    body["metadata"]["uid"] = "the life before"
    await deletion.release(api, body)
    assert FINALIZER in api.objects[PATH]["metadata"]["finalizers"]


async def test_hold(api):
    api.objects[PATH]["metadata"]["finalizers"] = ["other"]
    for _ in range(2):
        assert await deletion.hold(api, api.objects[PATH]) is True
        assert api.objects[PATH]["metadata"]["finalizers"] == ["other", FINALIZER]


async def test_what_became_of_the_data_is_told_before_the_queue_may_be_gone(api, store, end):
    """And once, though taking the finalizer off needs another try."""
    seen = []
    body = api.objects[PATH]

    def tell(note):
        seen.append((note.reason, FINALIZER in api.objects[PATH]["metadata"]["finalizers"]))

    assert await end.step(body, store, keeps_data=False, tell=tell)
    assert await end.step(body, store, keeps_data=False, tell=tell)
    assert seen == [("DataRemoved", True)]
