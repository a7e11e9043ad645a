"""What is written: only what differs, from the latest that is known, once per life."""

from types import SimpleNamespace

import pytest

from partq.kube.api import group_path, queue_path
from partq.kube.names import QueueKey
from partq.kube.reconcile.reporter import Reporter
from partq.kube.status.facts import QueueFacts
from partq.operator_metrics import OperatorMetrics
from tests.kube.bodies import group_body, queue_body
from tests.kube.facts import NOW, group_facts, queue_facts, queue_view
from tests.kube.fake_api import FakeApi

KEY = QueueKey("shop", "orders")
PATH = queue_path(*KEY, "/status")


@pytest.fixture
def api():
    api = FakeApi()
    api.objects[PATH] = queue_body()
    return api


@pytest.fixture
def told():
    return []


@pytest.fixture
def metrics():
    return OperatorMetrics()


@pytest.fixture
def reporter(api, told, metrics):
    events = SimpleNamespace(
        emit=lambda subject, reason, note, is_warning: told.append((subject.uid[:4], reason))
    )
    context = SimpleNamespace(api=api, events=events, metrics=metrics, now=lambda: NOW)
    member_pods = SimpleNamespace(pod_of=lambda member: None)
    return Reporter(context, KEY, member_pods)


async def test_nothing_is_written_twice(api, reporter):
    body = queue_body()
    await reporter.queue(body, queue_facts())
    conditions = api.objects[PATH]["status"]["conditions"]
    assert {each["type"]: each["status"] for each in conditions}["Ready"] == "True"
    for _ in range(3):  # the watch is late: the body is still the one before the writing
        await reporter.queue(body, queue_facts())
    assert api.calls == [("MERGE", PATH)]


async def test_only_what_differs_is_written(api, reporter):
    await reporter.queue(queue_body(), queue_facts())
    await reporter.queue(queue_body(), queue_facts(group_count=3))
    assert api.objects[PATH]["status"]["groups"] == 3
    assert len(api.calls) == 2


async def test_what_somebody_else_wrote_is_written_again(api, reporter):
    await reporter.queue(queue_body(), queue_facts())
    theirs = await api.merge(PATH, {"status": {"groups": 99}})
    theirs["metadata"]["resourceVersion"] = "100"
    await reporter.queue(theirs, queue_facts())
    assert api.objects[PATH]["status"]["groups"] == 0


async def test_a_new_life_of_the_name_is_told_of_from_the_start(api, reporter, told):
    away = queue_facts(view=queue_view(0, {}))
    await reporter.queue(queue_body(), away)
    await reporter.queue(queue_body(), away)
    first = [reason for _, reason in told]
    assert first == ["BrokersMissing", "BrokersMissing"], "brokers, and what they should serve"

    again = queue_body()
    again["metadata"] |= {"uid": "ffff0000-1111-4222-8333-123456789abc", "resourceVersion": "1"}
    api.objects[PATH] = again
    reporter.keep_only([again])
    await reporter.queue(again, away)
    assert [uid for uid, _ in told[len(first) :]] == ["ffff", "ffff"]
    assert api.objects[PATH]["status"]["observedGeneration"] == 3


async def test_the_metrics_of_a_group_go_with_it(api, reporter, metrics):
    bodies = {}
    for number, name in enumerate(("stays", "goes")):
        body = bodies[name] = group_body(name)
        body["metadata"]["uid"] = f"{number:08}-1111-4222-8333-123456789abc"
        api.objects[group_path("shop", name, "/status")] = body
        await reporter.group(name, body, group_facts(lag=7))
    for metric in ("partq_group_members", "partq_partitions", "partq_group_lag"):
        assert samples(metrics, metric) == {"stays", "goes"}

    reporter.keep_only([bodies["stays"]])
    for metric in ("partq_group_members", "partq_partitions", "partq_group_lag"):
        assert samples(metrics, metric) == {"stays"}


def samples(metrics, name):
    """Return the groups that a metric is shown of."""
    (found,) = [each for each in metrics.registry.collect() if each.name == name]
    return {sample.labels["group"] for sample in found.samples}


async def test_a_resource_that_is_gone_is_no_trouble(api, reporter):
    api.objects.clear()
    await reporter.queue(queue_body(), QueueFacts(key=KEY, generation=1))
