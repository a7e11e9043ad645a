"""Which pods replace, and which are being replaced."""

import pytest

from partq.core.group.observation import MemberFact
from partq.kube.member_pods import MemberPods
from partq.kube.watch import parse
from partq.kube.watch.object_cache import ObjectCache
from partq.kube.watch.rollout import HOLD_S, MARGIN_S, NEWS_S, Ages, rollout_facts
from tests.kube.bodies import group_body, pod_body, queue_body
from tests.kube.played_clock import Clock

OLD, NEW = "old", "new"
REPLACEMENT, REPLACED = MemberFact.IS_REPLACEMENT, MemberFact.IS_BEING_REPLACED
AVOIDED = MemberFact.IS_AVOIDED


def body(uid, template, *, minute=0, deployment="workers", **more):
    found = pod_body(uid, uid=uid, labels={"pod-template-hash": template}, **more)
    found["metadata"]["creationTimestamp"] = f"2026-11-20T10:{minute:02}:00Z"
    found["metadata"]["ownerReferences"][0]["name"] = f"{deployment}-{template}"
    return found


def pod(uid, template, **more):
    return parse.pod(body(uid, template, **more))


def facts(*pods, pod_s=5.0, ending_s=1.0):
    return rollout_facts(pods, lambda pod: Ages(pod_s, ending_s))


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param([pod("a", OLD), pod("b", OLD)], {}, id="no rollout"),
        pytest.param(
            [pod("a", OLD), pod("b", NEW, minute=1)],
            {"a": AVOIDED, "b": REPLACEMENT},
            id="a new one comes",
        ),
        pytest.param(
            [pod("a", OLD, deletion_grace=30), pod("b", NEW, minute=1)],
            {"a": REPLACED, "b": REPLACEMENT},
            id="an old one goes",
        ),
        pytest.param(
            [pod("a", OLD, deletion_grace=MARGIN_S), pod("b", NEW, minute=1)],
            {"b": REPLACEMENT},
            id="it has no time to wait",
        ),
        pytest.param(
            [pod("a", OLD), pod("b", NEW, minute=1, deletion_grace=30)],
            {},
            id="a new one goes again",
        ),
        pytest.param(
            [pod("a", OLD, minute=2), pod("b", NEW, minute=1)],
            {"a": REPLACEMENT, "b": AVOIDED},
            id="rolled back: the old template is the newest again",
        ),
        pytest.param(
            [pod("a", OLD, deployment="a"), pod("b", NEW, minute=1, deployment="b")],
            {},
            id="two Deployments are no rollout",
        ),
        pytest.param(
            [
                parse.pod(pod_body("w-0", uid="a", owner="StatefulSet", deletion_grace=30)),
                pod("b", NEW),
            ],
            {},
            id="a StatefulSet keeps names",
        ),
    ],
)
def test_rollout_facts(pods, expected):
    assert facts(*pods) == expected


def test_a_pod_that_ends_may_be_the_first_word_of_a_rollout():
    """Without surge the old pod is told to end before the new one is made."""
    alone = [pod("a", OLD, deletion_grace=30), pod("b", OLD)]
    assert facts(*alone, ending_s=NEWS_S - 0.1) == {"a": REPLACED}
    assert facts(*alone, ending_s=NEWS_S) == {}
    assert facts(pod("a", OLD, deletion_grace=MARGIN_S), ending_s=0.0) == {}


def test_a_rollout_that_is_stuck_is_none():
    assert facts(pod("a", OLD), pod("b", NEW, minute=1), pod_s=HOLD_S) == {}


def test_a_late_replacement_is_not_waited_for_to_the_end():
    pods = [pod("a", OLD, deletion_grace=30), pod("b", NEW, minute=1)]
    assert facts(*pods, ending_s=30 - MARGIN_S) == {"b": REPLACEMENT}


def test_members_of_a_group_in_a_rollout():
    clock = Clock()
    cache = ObjectCache(lambda key: None, clock)
    cache.put_queue(queue_body())
    cache.put_group(group_body())
    old, new = (f"{letter * 8}-bbbb-4ccc-8ddd-eeeeeeeeeeee" for letter in "ab")
    cache.put_pod(pod(old, OLD))
    cache.put_pod(pod(new, NEW, minute=1))
    member_pods = MemberPods(
        cache,
        "shop",
        policy_of=lambda group: "KubernetesAware",
        delay_s_of=lambda group: 5.0,
        clock=clock,
    )
    members = [f"{old}/main", f"{new}/main"]

    assert list(member_pods.facts("workers", members, ()).values()) == [AVOIDED, REPLACEMENT]
    clock.now += 60
    cache.put_pod(pod(old, OLD, deletion_grace=30))
    clock.now += 30 - MARGIN_S - 1
    assert list(member_pods.facts("workers", members, ()).values()) == [REPLACED, REPLACEMENT]
    clock.now += 1
    assert list(member_pods.facts("workers", members, ()).values()) == [
        MemberFact.IS_TERMINATING,
        REPLACEMENT,
    ]
    cache.drop_pod(pod(old, OLD, deletion_grace=0))
    assert list(member_pods.facts("workers", members, ()).values()) == [
        MemberFact.IS_GONE_FOR_GOOD,
        MemberFact.EXISTS,
    ]
