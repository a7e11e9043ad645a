"""The table of docs/kubernetes.md: what is seen of a member, and what happens to its partitions."""

import pytest

from partq.core.group.moves import Forced, Trigger
from partq.core.group.standby import StandbyPolicy
from partq.kube.watch.nodes import KubeNode, Taint
from partq.kube.watch.rollout import NEWS_S
from tests.kube.played_group import DELAY_S, GRACE_S, PlayedGroup, uid_of

PARTITIONS = 6
BACK_OFF = {"reason": "CrashLoopBackOff", "message": "back-off 10s restarting failed container"}
EVICTED = {"phase": "Failed", "ended": True}


def begin(*, policy="KubernetesAware", standby=StandbyPolicy.AT_ONCE, size=2, **body):
    """Return a group whose pods 0, 1 and so on share all; of the last one `body` is said."""
    group = PlayedGroup(partitions=PARTITIONS, policy=policy, standby=standby)
    for number in range(size):
        group.pod(number, **(body if number == size - 1 else {}))
    group.settle()
    assert set(group.held()) == set(range(size))
    return group


def waits(group):
    """Whether the partitions of pod 1 wait out the delay and pass on after it."""
    before = group.held()
    assert group.look() == []
    group.pass_time(DELAY_S - 0.1)
    assert group.look() == []
    assert group.held() == before
    group.pass_time(0.1)
    return {move.trigger for move in group.settle()} == {Trigger.MEMBER_LOST}


def taken_at_once(group):
    """Return how the partitions of pod 1 are taken over now."""
    moved = group.settle()
    assert len(moved) == 3
    assert group.held()[1] == 0
    return {(move.trigger, move.forced) for move in moved}


@pytest.mark.req("MEM-01")
def test_a_lost_connection_is_waited_for():
    group = begin()
    group.lose(1)
    assert group.look() == []
    group.connect(1)
    assert group.settle() == [], "back in time: nothing has moved"
    group.lose(1)
    assert waits(group)


@pytest.mark.req("MEM-02")
def test_a_container_restart_moves_nothing():
    group = begin()
    group.pod(1, ended=True, ready=False)
    group.lose(1)
    assert group.look() == []
    group.pod(1, ended=False, ready=True)
    group.connect(1)
    assert group.settle() == []
    assert group.moves.total() == 0


@pytest.mark.req("MEM-03")
def test_a_crash_loop_longer_than_the_delay_is_not_waited_for():
    group = begin()
    group.pod(1, waiting=BACK_OFF, ready=False)
    group.lose(1)
    assert taken_at_once(group) == {(Trigger.MEMBER_LEFT, Forced.SOURCE_LOST)}
    group.pod(1, waiting=None, ready=True)
    group.connect(1)
    group.settle()
    assert group.held() == {0: 3, 1: 3}, "it joins again"


@pytest.mark.req("MEM-03")
def test_a_crash_loop_shorter_than_the_delay_is_waited_for():
    group = begin()
    short = BACK_OFF | {"message": "back-off 4s restarting failed container"}
    group.pod(1, waiting=short, ready=False)
    group.lose(1)
    assert waits(group)


@pytest.mark.req("MEM-04")
@pytest.mark.parametrize("owner", ["ReplicaSet", "StatefulSet", None])
def test_a_pod_that_ends_hands_over_at_once_and_gracefully(owner):
    """Scaled down, drained, evicted or preempted through the API: all of them set the time."""
    group = begin(owner=owner)
    group.end(1)
    group.pass_time(NEWS_S)  # it may have been the first word of a rollout
    assert taken_at_once(group) == {(Trigger.MEMBER_LEFT, None)}


@pytest.mark.req("MEM-04")
def test_a_pod_that_ends_drains_no_longer_than_it_lives():
    group = begin()
    member = uid_of(1)
    assert group.member_pods.time_left_ms("workers", member) is None
    group.end(1)
    assert group.member_pods.time_left_ms("workers", member) == (GRACE_S - 1) * 1000
    group.pass_time(GRACE_S - 2)
    assert group.member_pods.time_left_ms("workers", member) == 1000
    group.pass_time(2)
    assert group.member_pods.time_left_ms("workers", member) == 0


@pytest.mark.req("MEM-05")
def test_an_evicted_pod_whose_object_stays_is_gone_for_good():
    """The kubelet evicts under pressure: no deletion, the pod has failed."""
    group = begin()
    group.pod(1, **EVICTED)
    group.lose(1)
    assert taken_at_once(group) == {(Trigger.MEMBER_LEFT, Forced.SOURCE_LOST)}


@pytest.mark.req("MEM-05")
def test_a_pod_gone_without_warning_whose_owner_makes_another_name():
    group = begin()
    group.finish(1)
    assert taken_at_once(group) == {(Trigger.MEMBER_LEFT, Forced.SOURCE_LOST)}


@pytest.mark.req("MEM-06")
@pytest.mark.parametrize("life", ["vanishes", "evicted"])
def test_a_pod_whose_owner_keeps_its_name_is_waited_for(life):
    group = begin(owner="StatefulSet")
    if life == "evicted":
        group.pod(1, **EVICTED)
        group.lose(1)
    else:
        group.finish(1)
    assert waits(group)


@pytest.mark.req("MEM-08")
def test_a_pod_removed_by_force_may_still_run():
    group = begin()
    group.pod(1, deletion_grace=0)
    group.remove(1)
    assert waits(group)


@pytest.mark.req("MEM-09")
def test_a_node_out_of_reach_says_nothing_of_its_pods():
    group = begin()
    group.pod(1, ready=False)  # the node controller says so in the kubelet's place
    group.lose(1)
    assert waits(group)


@pytest.mark.req("MEM-10")
def test_past_the_delay_it_joins_as_new():
    group = begin(size=3)
    group.lose(2)
    group.pass_time(DELAY_S)
    group.settle()
    assert group.held() == {0: 3, 1: 3}
    group.connect(2)
    group.settle()
    assert group.held() == {0: 2, 1: 2, 2: 2}


@pytest.mark.req("MEM-11")
@pytest.mark.parametrize(
    ("standby", "how"),
    [
        (StandbyPolicy.AT_ONCE, "lost"),
        (StandbyPolicy.AT_ONCE, "gone"),
        (StandbyPolicy.AFTER_DELAY, "lost"),
        (StandbyPolicy.AFTER_DELAY, "gone"),
    ],
)
def test_a_standby_takes_over_one_for_one(standby, how):
    group = begin(size=PARTITIONS, standby=standby)
    group.pod(PARTITIONS)
    assert group.settle() == [], "one more than there are partitions: it stands by"
    if how == "gone":
        group.finish(1)
    else:
        group.lose(1)
        if standby is StandbyPolicy.AFTER_DELAY:
            assert group.look() == []
            group.pass_time(DELAY_S)
    (move,) = group.settle()
    assert (move.ownership.member, move.target) == (uid_of(1), uid_of(PARTITIONS))


@pytest.mark.req("MEM-07")
def test_a_crash_in_a_rollout_is_no_matter_of_standbys():
    """The pod of the new template stands by for one that ends: a crash waits, as without it."""
    group = begin()
    group.pod(2, "new")
    assert group.settle() == []
    group.lose(1)
    assert group.look() == []
    group.connect(1)
    assert group.settle() == []


CORDONED, TAINTED = KubeNode(True, ()), KubeNode(False, (Taint("maintenance", ""),))


@pytest.mark.req("MEM-13")
@pytest.mark.parametrize("doomed", ["unready", "cordoned", "tainted", "ending"])
def test_a_pod_that_is_about_to_go_gets_nothing(doomed):
    group = begin(size=3, node="a-node")
    if doomed == "ending":
        group.end(2)
        group.pass_time(NEWS_S)
    elif doomed == "unready":
        group.pod(2, ready=False)
    else:
        group.cache.put_node("a-node", CORDONED if doomed == "cordoned" else TAINTED)
    before = group.held()[2]
    group.finish(1)
    moved = group.settle()
    assert uid_of(2) not in {move.target for move in moved}
    assert group.held()[2] == (0 if doomed == "ending" else before)


@pytest.mark.req("MEM-13")
def test_a_pod_that_bears_the_taint_or_whose_node_is_well_again_gets_its_share():
    lasting = [{"key": "maintenance", "operator": "Exists", "effect": "NoExecute"}]
    group = begin(size=3, node="a-node", tolerations=lasting)
    group.cache.put_node("a-node", TAINTED)
    group.finish(1)
    group.settle()
    assert group.held() == {0: 3, 2: 3}

    group = begin(size=3, node="a-node")
    group.cache.put_node("a-node", CORDONED)
    group.finish(1)
    group.settle()
    assert group.held() == {0: 4, 2: 2}
    group.cache.put_node("a-node", None)
    group.settle()
    assert group.held() == {0: 3, 2: 3}


TIMER_ROWS = {
    "container restart": lambda group: group.pod(1, ended=True, ready=False),
    "crash loop": lambda group: group.pod(1, waiting=BACK_OFF, ready=False),
    "ending": lambda group: group.end(1),
    "evicted": lambda group: group.pod(1, **EVICTED),
    "gone": lambda group: group.finish(1),
    "removed by force": lambda group: group.remove(1),
    "node lost": lambda group: group.pod(1, ready=False),
    "rollout": lambda group: (group.pod(2, "new"), group.finish(1)),
}


@pytest.mark.req("MEM-12")
@pytest.mark.parametrize("row", TIMER_ROWS)
def test_a_timer_knows_nothing_and_waits(row):
    group = begin(policy="Timer", standby=StandbyPolicy.AFTER_DELAY)
    TIMER_ROWS[row](group)
    group.lose(1)
    assert waits(group)


@pytest.mark.req("MEM-12")
def test_a_timer_leaves_a_pod_that_ends_its_partitions_and_its_time():
    group = begin(policy="Timer")
    group.end(1)
    assert group.settle() == []
    assert group.member_pods.time_left_ms("workers", uid_of(1)) is None


@pytest.mark.parametrize("policy", ["KubernetesAware", "Timer"])
def test_an_annotation_of_the_pod_says_the_priority(policy, caplog):
    """Under each policy: it is what a person wants, and no guess from what pods do."""
    group = PlayedGroup(policy=policy)
    said = {0: "3", 1: "0", 2: "12", 3: "high", 4: "-1", 5: None}
    members = [
        group.pod(number, annotations={"partq.dev/priority": text} if text else {})
        for number, text in said.items()
    ]
    for _ in range(2):
        assert group.member_pods.priorities("workers", members) == {uid_of(0): 3, uid_of(1): 0}
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 3
    assert "got '12', expected 0 to 9; it is ignored" in told[0]
    group.pod(0, annotations={})
    assert group.member_pods.priorities("workers", members) == {uid_of(1): 0}
