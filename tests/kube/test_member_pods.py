"""Who may bind, and what pods say of members: the table of section "membership"."""

import pytest

from partq.core.group.observation import MemberFact
from partq.core.model import MemberId
from partq.kube.member_pods import MemberPods
from partq.kube.names import QueueKey
from partq.kube.watch import parse
from partq.kube.watch.object_cache import GroupKey, ObjectCache
from partq.kube.watch.rollout import NEWS_S
from tests.kube.bodies import POD_UID, group_body, pod_body, queue_body
from tests.kube.played_clock import Clock

KEY = QueueKey("shop", "orders")
DELAY_S = 30.0
MEMBER = MemberId(f"{POD_UID}/main")


@pytest.fixture
def noticed():
    return []


@pytest.fixture
def cache(noticed, clock):
    cache = ObjectCache(noticed.append, clock)
    cache.complete("")
    cache.put_queue(queue_body())
    cache.put_group(group_body())
    noticed.clear()
    return cache


def member_pods(cache, policy="KubernetesAware", clock=None):
    return MemberPods(
        cache,
        "shop",
        policy_of=lambda group: policy,
        delay_s_of=lambda group: DELAY_S,
        clock=clock or Clock(),
    )


@pytest.mark.parametrize(
    ("pod", "member", "address", "is_admitted"),
    [
        pytest.param(pod_body(), MEMBER, "10.0.0.7", True, id="its own pod"),
        pytest.param(pod_body(), POD_UID, "10.0.0.7", True, id="without a container"),
        pytest.param(pod_body(), MEMBER, "10.0.0.8", False, id="from another address"),
        pytest.param(pod_body(ready=False), MEMBER, "10.0.0.7", False, id="not Ready"),
        pytest.param(pod_body(deletion_grace=9), MEMBER, "10.0.0.7", False, id="terminating"),
        pytest.param(pod_body(labels={"app": "x"}), MEMBER, "10.0.0.7", False, id="not selected"),
        pytest.param(pod_body(namespace="b"), MEMBER, "10.0.0.7", False, id="another namespace"),
        pytest.param(pod_body(uid="other"), MEMBER, "10.0.0.7", False, id="another pod"),
        pytest.param(pod_body(ip=None), MEMBER, "", False, id="without an address"),
        pytest.param(pod_body(name="w-0"), "w-0", "10.0.0.7", False, id="a name that is not kept"),
        pytest.param(
            pod_body(name="w-0", owner="StatefulSet"), "w-0/main", "10.0.0.7", True, id="kept name"
        ),
    ],
)
def test_admits(cache, pod, member, address, is_admitted):
    cache.put_pod(parse.pod(pod))
    assert (member_pods(cache).refusal("workers", member, address) is None) is is_admitted
    assert member_pods(cache).refusal("another", member, address) is not None


def put(cache, **body):
    cache.put_pod(parse.pod(pod_body(**body)))


def drop(cache, **body):
    cache.drop_pod(parse.pod(pod_body(**body)))


LIFE = [
    pytest.param([], MemberFact.UNKNOWN, id="never seen"),
    pytest.param([(put, {})], MemberFact.EXISTS, id="there"),
    pytest.param([(put, {"ended": True})], MemberFact.EXISTS, id="its container restarts"),
    pytest.param(
        [(put, {}), (put, {"deletion_grace": 30})], MemberFact.IS_TERMINATING, id="terminating"
    ),
    pytest.param(
        [(put, {"deletion_grace": 30}), (put, {"deletion_grace": 0})],
        MemberFact.IS_TERMINATING,
        id="the kubelet's last word",
    ),
    pytest.param(
        [(put, {"deletion_grace": 30}), (drop, {"deletion_grace": 0})],
        MemberFact.IS_GONE_FOR_GOOD,
        id="ended and gone",
    ),
    pytest.param(
        [(put, {"ended": True}), (drop, {"ended": True})],
        MemberFact.IS_GONE_FOR_GOOD,
        id="gone without warning, its process too",
    ),
    pytest.param(
        [(put, {}), (put, {"phase": "Failed"}), (drop, {"phase": "Failed", "deletion_grace": 0})],
        MemberFact.IS_GONE_FOR_GOOD,
        id="marked as failed, then removed by force with its node",
    ),
    pytest.param(
        [(put, {}), (put, {"deletion_grace": 0}), (drop, {"deletion_grace": 0})],
        MemberFact.UNKNOWN,
        id="removed by force: it may still run",
    ),
    pytest.param(
        [(put, {"owner": "StatefulSet"}), (drop, {"owner": "StatefulSet", "ended": True})],
        MemberFact.UNKNOWN,
        id="gone, its owner keeps the name",
    ),
    pytest.param(
        [(put, {"owner": None}), (drop, {"owner": None, "ended": True})],
        MemberFact.UNKNOWN,
        id="gone, and nobody makes another",
    ),
]


@pytest.mark.parametrize(("life", "fact"), LIFE)
def test_facts(cache, clock, life, fact):
    for step, body in life:
        step(cache, **body)
    clock.now += NEWS_S
    facts = member_pods(cache).facts("workers", [MEMBER], ())
    assert facts.get(MEMBER, MemberFact.UNKNOWN) is fact


def test_a_timer_knows_nothing(cache):
    put(cache, deletion_grace=30)
    assert member_pods(cache, "Timer").facts("workers", [MEMBER], [MEMBER]) == {}


@pytest.mark.parametrize(
    ("body", "fact"),
    [({}, MemberFact.IS_BEING_REPLACED), ({"owner": "StatefulSet"}, MemberFact.EXISTS)],
)
def test_who_leaves_may_know_of_its_pods_end_before_the_operator(cache, clock, body, fact):
    """For a moment; then it leaves for reasons of its own. A new life begins anew."""
    put(cache, **body)
    known = member_pods(cache, clock=clock)

    def found(*leaving):
        return known.facts("workers", [MEMBER], leaving)[MEMBER]

    assert found() is MemberFact.EXISTS
    for _ in range(2):
        assert found(MEMBER) is fact
        clock.now += NEWS_S / 2
        assert found(MEMBER) is fact
        clock.now += NEWS_S / 2
        assert found(MEMBER) is MemberFact.EXISTS
        assert found() is MemberFact.EXISTS


@pytest.mark.parametrize(
    ("life", "fact"),
    [
        ([(put, {})], MemberFact.EXISTS),
        ([(put, {}), (drop, {"ended": True})], None),
        ([(put, {"deletion_grace": 30})], MemberFact.IS_AVOIDED),
        ([(put, {"phase": "Failed"})], MemberFact.IS_AVOIDED),
        ([(drop, {"ended": True}), (put, {"uid": POD_UID.replace("a", "f")})], MemberFact.EXISTS),
    ],
)
def test_a_member_known_by_its_pods_name_comes_back_with_the_next_pod(cache, life, fact):
    member = MemberId("workers-0/main")
    for step, body in life:
        step(cache, name="workers-0", owner="StatefulSet", **body)
    assert member_pods(cache).facts("workers", [member], ()).get(member) is fact


def test_pods_wake_the_queues_that_they_concern(cache, noticed):
    put(cache)
    assert noticed == [KEY]
    put(cache)
    assert noticed == [KEY], "nothing has changed"
    put(cache, labels={"app": "stranger"}, uid="other")
    assert noticed == [KEY]
    put(cache, labels={"app": "x", "partq.dev/queue": "orders"}, uid="broker", name="b")
    assert noticed == [KEY, KEY]
    assert [pod.uid for pod in cache.brokers(KEY)] == ["broker"]


def test_a_broken_spec_keeps_the_selector_that_was_valid(cache):
    put(cache)
    broken = group_body(type="Common")
    broken["metadata"]["resourceVersion"] = "8"
    cache.put_group(broken)
    assert member_pods(cache).refusal("workers", MEMBER, "10.0.0.7") is None


def test_what_a_list_finds_is_not_older_than_what_a_watch_told(cache, noticed):
    newer = queue_body(partitions=8)
    newer["metadata"]["resourceVersion"] = "10"
    cache.put_queue(newer)
    older = queue_body(partitions=4)
    older["metadata"]["resourceVersion"] = "9"
    cache.put_queue(older)
    assert cache.queue(KEY)["spec"] == {"partitions": 8}
    assert noticed == [KEY]

    again = queue_body(partitions=2)
    again["metadata"] |= {"resourceVersion": "1", "uid": "another life"}
    cache.put_queue(again)
    assert cache.queue(KEY)["spec"] == {"partitions": 2}


def test_groups_without_a_queue_are_known(cache):
    cache.put_group(group_body("lonely", "nowhere"))
    assert cache.queue_keys == {KEY, QueueKey("shop", "nowhere")}
    cache.drop_group(GroupKey("shop", "lonely"))
    assert cache.queue_keys == {KEY}
    assert "managedFields" not in cache.queue(KEY)["metadata"]
