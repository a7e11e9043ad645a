"""What one look makes, leaves and says: with the API server and the store in memory."""

from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from partq.core.group.membership import MemberState
from partq.core.views.partition_advice import WINDOW_COUNT
from partq.kube.api import queue_path
from partq.kube.names import FINALIZER, PAUSE, QueueKey
from partq.kube.reconcile import queue_worker
from partq.kube.reconcile.queue_worker import MEASURE_S, QueueWorker
from partq.kube.watch.object_cache import GroupKey, ObjectCache
from partq.operator_metrics import OperatorMetrics
from partq.settings import OperatorSettings
from tests.kube.bodies import group_body, queue_body
from tests.kube.facts import group_view, queue_view
from tests.kube.fake_api import FakeApi
from tests.kube.fake_store import FakeStore
from tests.kube.played_clock import Clock

KEY = QueueKey("shop", "orders")
STATEFUL_SET = "/apis/apps/v1/namespaces/shop/statefulsets/orders-broker"


class FakeHost:
    """Opens the store of the test, and notes whether a coordinator runs."""

    def __init__(self, context, key, member_pods, *, on_view, on_rebalance, on_rescale):
        self._context = context
        self._key = key
        self.show = on_view
        self.tell = on_rescale
        self.is_coordinating = False

    async def store(self, url, uid):
        return await self._context.open_store(url, self._key, uid)

    async def coordinate(self, token, ca_pem):
        self.is_coordinating = True

    def rebalance_now(self, group):
        return self.is_coordinating

    def wake(self):
        pass

    async def pause(self):
        self.is_coordinating = False

    async def close(self):
        self.is_coordinating = False


class Stage:
    """One namespace, its Redis, and the operators that come and go."""

    def __init__(self, monkeypatch):
        self.api = FakeApi()
        self.cache = ObjectCache(lambda key: None)
        self.store = FakeStore()
        self.clock = Clock()
        self.metrics = OperatorMetrics()
        self.told = []
        self.opened = []
        self._monkeypatch = monkeypatch
        self._version = 100

    def operator(self):
        """Return the worker of an operator that has just begun, and what it serves with."""
        made = []

        def host(*args, **kwargs):
            made.append(FakeHost(*args, **kwargs))
            return made[0]

        self._monkeypatch.setattr(queue_worker, "CoordinatorHost", host)
        context = SimpleNamespace(
            api=self.api,
            cache=self.cache,
            clock=self.clock,
            costs=SimpleNamespace(note=lambda *_: None, forget=lambda *_: None),
            events=SimpleNamespace(emit=self._tell),
            metrics=self.metrics,
            now=lambda: datetime(2026, 11, 20, 12, tzinfo=UTC),
            open_store=self._open_store,
            server_version=(1, 20),
            settings=OperatorSettings(
                redis_url="redis://redis:6379/0",
                broker_image="partq",
                pod_name="operator-0",
                pod_namespace="ops",
            ),
        )
        return QueueWorker(context, KEY), made[0]

    def put_queue(self, *, held=True, status=None, **spec):
        """Have the queue's spec be this, as the API server and the watch tell."""
        body = self._next(queue_body(**spec), self.cache.queue(KEY))
        if held:
            body["metadata"]["finalizers"] = [FINALIZER]
        if status:
            body["status"] = status
        self.api.objects[queue_path(*KEY)] = deepcopy(body)
        self.cache.put_queue(body)
        return body

    def put_group(self, name="workers", **spec):
        body = self._next(group_body(name, **spec), self.cache.groups(KEY).get(name))
        body["metadata"]["uid"] = f"uid-of-{name}"
        self.cache.put_group(body)
        return body

    def drop_group(self, name="workers"):
        self.cache.drop_group(GroupKey("shop", name))

    async def status(self, worker):
        """Return the queue's status as the worker writes it now."""
        path = queue_path(*KEY, "/status")
        self.api.objects.setdefault(path, self.api.objects[queue_path(*KEY)])
        await worker.statuses.write()
        return self.api.objects[path]["status"]

    def applied(self):
        """Return the broker's StatefulSet, if it was applied since the last time of asking."""
        is_applied = ("APPLY", STATEFUL_SET) in self.api.calls
        self.api.calls.clear()
        return self.api.objects[STATEFUL_SET] if is_applied else None

    def _next(self, body, before):
        self._version += 1
        generation = before["metadata"]["generation"] + 1 if before is not None else 1
        body["metadata"] |= {"generation": generation, "resourceVersion": str(self._version)}
        return body

    async def _open_store(self, url, key, uid):
        self.opened.append(url)
        return self.store

    def _tell(self, subject, reason, note, *, is_warning):
        self.told.append((subject.name, str(reason)))


@pytest.fixture
def stage(monkeypatch):
    return Stage(monkeypatch)


def troubles(worker):
    """Return the reasons that the last look found."""
    return [str(finding.reason) for finding in worker.troubles]


def condition(status, type_):
    """Return status and reason of a condition."""
    found = {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}
    return found[type_]


async def test_a_queue_that_is_new(stage):
    stage.put_queue(partitions=4)
    stage.put_group()
    worker, host = stage.operator()
    assert await worker.look()
    assert host.is_coordinating
    assert stage.store.layout.partition_count == 4
    assert stage.store.groups["workers"].spec["type"] == "Partitioned"
    assert stage.applied() is not None
    status = await stage.status(worker)
    assert status["observedGeneration"] == 1
    assert condition(status, "ObjectsApplied") == ("True", "AsSpecified")


async def test_a_spec_that_nobody_looked_at_is_not_called_observed(stage):
    stage.put_queue(partitions=4)
    worker, _ = stage.operator()
    await worker.look()
    stage.put_queue(partitions=4, limits={"maxMessageBytes": 1})
    assert (await stage.status(worker))["observedGeneration"] == 1
    stage.put_queue(partitions=4, limits={"maxMessageBytes": 1}, annotations={PAUSE: "true"})
    await worker.look()
    assert (await stage.status(worker))["observedGeneration"] == 1, "paused: nobody looks"
    stage.put_queue(partitions=4, limits={"maxMessageBytes": 1})
    await worker.look()
    status = await stage.status(worker)
    assert status["observedGeneration"] == 4
    assert condition(status, "SpecValid") == ("False", "InvalidSpec")
    assert condition(status, "Stalled") == ("True", "InvalidSpec")
    assert condition(status, "Ready")[0] == "Unknown", "as it was: what was valid before continues"


async def test_another_number_of_partitions_is_recorded_and_all_else_goes_on(stage):
    stage.put_queue(partitions=4)
    stage.put_group()
    worker, host = stage.operator()
    await worker.look()
    stage.applied()
    assert stage.store.config.spec["uid"], "by which brokers know that there is a resource"

    stage.put_queue(partitions=8, brokers={"replicas": 3})
    assert await worker.look()
    assert stage.store.layout.partition_count == 4, "the coordinator changes it"
    assert stage.store.config.spec["partitions"] == 8
    assert stage.applied()["spec"]["replicas"] == 3
    host.show(queue_view())
    await worker.look()
    status = await stage.status(worker)
    assert status["partitions"] == {
        "configured": 4, "ready": 4, "target": 8, "retiring": 0, "summary": "4->8",
    }  # fmt: skip
    assert (status["rescale"]["phase"], status["rescale"]["to"]) == ("Preparing", 8)
    assert condition(status, "Ready")[0] == "True"
    assert condition(status, "Reconciling") == ("True", "RescalePreparing")
    where = 'namespace="shop",phase="Preparing",queue="orders"'
    assert f"partq_rescale_phase{{{where}}} 1.0" in stage.metrics.render().decode()

    stage.put_queue(partitions=4, status=status)
    await worker.look()
    status = await stage.status(worker)
    assert (status["partitions"]["summary"], status.get("rescale")) == ("4", None)
    assert condition(status, "Reconciling")[1] != "RescalePreparing"
    assert "partq_rescale_phase{" not in stage.metrics.render().decode()


async def test_a_partition_count_with_too_many_parts_is_the_queue_s_trouble(stage):
    stage.put_queue(partitions=4)
    shared = {"type": "KeyShared", "keyShared": {"parts": 64}}
    group = stage.put_group(**shared)
    worker, host = stage.operator()
    assert await worker.look()

    stage.put_queue(partitions=1025)
    assert not await worker.look()
    (found,) = worker.troubles
    assert str(found.reason) == "InvalidSpec"
    assert "spec.partitions: got 1025, of which group workers" in found.message
    status = await stage.status(worker)
    assert condition(status, "SpecValid") == ("False", "InvalidSpec")
    assert worker._groups.problem("workers", group) is None, "the group is as it was"
    assert host.is_coordinating

    stage.put_queue(partitions=1024)
    assert await worker.look()


async def test_a_spec_that_is_broken_while_no_operator_runs_stops_no_running_queue(stage):
    stage.put_queue(partitions=4, brokers={"replicas": 3})
    stage.put_group()
    worker, _ = stage.operator()
    await worker.look()
    stage.applied()

    broken = stage.put_queue(partitions=4, keylessPolicy="?", status={"tokensSecret": "x"})
    assert broken["metadata"]["generation"] == 2
    worker, host = stage.operator()
    assert not await worker.look()
    assert troubles(worker) == ["InvalidSpec"]
    assert host.is_coordinating
    assert stage.applied() is None, "the record does not say how broker pods are run"

    stage.drop_group()
    await worker.look()
    assert stage.store.groups == {}
    assert stage.store.config.spec["brokers"] == {"replicas": 3}

    stage.put_queue(partitions=4)
    assert await worker.look()
    assert stage.applied()["spec"]["replicas"] == 2


def it_is_gone(stage):
    del stage.api.objects[queue_path(*KEY)]


def the_api_server_does_not_answer(stage):
    stage.api.broken.add(queue_path(*KEY))


@pytest.mark.parametrize(
    ("happens", "is_told"),
    [(it_is_gone, False), (the_api_server_does_not_answer, True)],
)
async def test_nothing_is_made_before_the_finalizer_is_there(stage, happens, is_told):
    body = stage.put_queue(held=False, partitions=4)
    happens(stage)
    worker, host = stage.operator()
    await worker.look()
    assert bool(troubles(worker)) is is_told
    assert stage.store.writes == []
    assert not host.is_coordinating
    assert [call for call in stage.api.calls if call[1] != queue_path(*KEY)] == []

    stage.api.broken.clear()
    stage.api.objects[queue_path(*KEY)] = body
    assert await worker.look()
    assert FINALIZER in stage.api.objects[queue_path(*KEY)]["metadata"]["finalizers"]
    assert "register" in stage.store.writes
    assert host.is_coordinating


async def test_nothing_is_made_of_a_spec_that_was_never_valid(stage):
    stage.put_queue(partitions=0)
    worker, host = stage.operator()
    assert not await worker.look()
    assert troubles(worker) == ["InvalidSpec"]
    assert not host.is_coordinating
    assert stage.store.writes == []
    assert list(stage.api.objects) == [queue_path(*KEY)]

    status = await stage.status(worker)
    assert status["observedGeneration"] == 1
    assert condition(status, "SpecValid") == ("False", "InvalidSpec")
    assert condition(status, "ObjectsApplied") == ("Unknown", "Pending")


async def test_the_last_spec_that_was_valid_is_still_repaired(stage):
    stage.put_queue(partitions=4)
    worker, _ = stage.operator()
    await worker.look()
    stage.put_queue(partitions=0)
    stage.applied()
    stage.clock.now += 3600
    assert not await worker.look()
    assert stage.applied() is not None


@pytest.mark.parametrize("code", [400, 422])
async def test_an_object_that_the_api_server_refuses_needs_a_person(stage, code):
    stage.put_queue(partitions=4)
    stage.api.refused[STATEFUL_SET] = code
    worker, host = stage.operator()
    assert not await worker.look()
    status = await stage.status(worker)
    assert condition(status, "ObjectsApplied") == ("False", "Refused")
    assert condition(status, "Stalled") == ("True", "Refused")
    assert f"{code}: refused" in status["conditions"][0]["message"]
    assert host.is_coordinating, "what runs continues"

    stage.api.refused.clear()
    assert await worker.look()


QUEUES = "/apis/partq.dev/v1alpha1/namespaces/shop/partitionedqueues"
LETTERS = {"ack": {"maxRedeliveries": 3}, "deadLetter": {"create": True}}


@pytest.mark.req("PUL-59")
async def test_a_dead_letter_queue_is_made_once_and_never_touched(stage):
    stage.put_queue(partitions=4)
    stage.put_group(**LETTERS)
    worker, _ = stage.operator()
    assert await worker.look()
    made = stage.api.objects[f"{QUEUES}/orders-workers-dlq"]
    assert made["spec"]["partitions"] == 4
    assert stage.told.count(("orders", "DeadLetterQueueCreated")) == 1

    before = deepcopy(made)
    assert await worker.look(), "the watch has not shown it yet"
    assert stage.api.objects[f"{QUEUES}/orders-workers-dlq"] == before
    assert stage.told.count(("orders", "DeadLetterQueueCreated")) == 1
    stage.cache.put_queue(queue_body("orders-workers-dlq", partitions=1))
    stage.api.calls.clear()
    assert await worker.look()
    assert ("POST", QUEUES) not in stage.api.calls, "a queue that is there is somebody's"


async def test_a_dead_letter_queue_that_may_not_be_made_is_told_and_stops_nothing(stage):
    stage.put_queue(partitions=4)
    stage.put_group(**LETTERS)
    stage.api.refused[QUEUES] = 403
    worker, host = stage.operator()
    assert not await worker.look()
    assert troubles(worker) == ["Forbidden"]
    assert host.is_coordinating
    stage.api.refused.clear()
    assert await worker.look()
    assert troubles(worker) == []


async def test_a_group_that_has_begun_begins_at_no_other_time(stage):
    stage.put_queue(partitions=4)
    stage.put_group(startAt="2026-01-31T12:00:00Z")
    worker, _ = stage.operator()
    await worker.look()
    assert stage.store.groups["workers"].spec["startAtMs"] == 1_769_860_800_000
    stage.put_group(start="Latest")
    await worker.look()
    stored = stage.store.groups["workers"].spec
    assert (stored["startAtMs"], stored["start"]) == (1_769_860_800_000, "Earliest")


async def test_a_group_deleted_and_created_between_two_looks_is_another_group(stage):
    """What may not be changed on a group may well differ, and its place is that of a new one."""
    stage.put_queue(partitions=4)
    stage.put_group(start="Latest")
    worker, _ = stage.operator()
    await worker.look()
    assert stage.store.groups["workers"].spec["start"] == "Latest"
    body = deepcopy(stage.put_group(start="Earliest"))
    body["metadata"] |= {"uid": "uid-of-another", "generation": 1}
    stage.cache.put_group(body)
    stage.store.writes.clear()
    await worker.look()
    assert stage.store.groups["workers"].spec["start"] == "Earliest"
    assert stage.store.writes.count("add_group") == 4
    assert stage.store.writes.count("write_queue") == 2, "without it, and with it"
    stage.store.writes.clear()
    await worker.look()
    assert "add_group" not in stage.store.writes


async def test_a_number_of_partitions_is_advised_and_not_while_it_changes(stage):
    stage.put_queue(partitions=4)
    stage.put_group()
    worker, host = stage.operator()
    await worker.look()
    members = {f"m-{number}": MemberState.BOUND for number in range(6)}
    host.show(replace(queue_view(), groups={"workers": group_view(members=members)}))

    async def watch(times):
        for _ in range(times):
            stage.clock.now += MEASURE_S
            await worker.look()
        return (await stage.status(worker)).get("advice")

    assert await watch(WINDOW_COUNT - 1) is None
    stage.put_queue(partitions=5)
    assert await watch(1) is None, "the number changes"
    stage.put_queue(partitions=4)
    advice = await watch(WINDOW_COUNT)
    assert (advice["partitions"], advice["reason"]) == (8, "MembersStandBy")
    shown = 'partq_advised_partitions{namespace="shop",queue="orders"} 8.0'
    assert shown in stage.metrics.render().decode()
