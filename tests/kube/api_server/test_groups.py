"""A group and its pods: who is a member, what moves when pods come, end and vanish."""

import pytest

from tests.kube.api_server.processes import eventually

QUEUE = "jobs"
LONG = 300
"""A rebalance delay, in seconds, that no test waits for: what happens all the same did not wait."""
SHORT = {"delaySeconds": 2}


@pytest.fixture(scope="module")
def brokers(stage):
    stage.start_operator()
    stage.apply_queue(QUEUE, rebalance={"delaySeconds": LONG, "maxHandoffSeconds": 2})
    return stage.serve(QUEUE)


def rebalances(stage, group):
    """Return what the last rebalances were due to, with what they moved and assigned."""
    found = stage.status("ConsumerGroup", group).get("rebalances", ())
    return [(each["trigger"], each["moved"], each["assigned"]) for each in found]


def start_two(stage, brokers, owner, group):
    """Start one pod after the other; return them and the rebalances when status tells of both."""
    first = stage.start_pod(brokers, owner, group)
    stage.wait_for_shares(QUEUE, group, first)
    second = stage.start_pod(brokers, owner, group)
    stage.wait_for_shares(QUEUE, group, first, second)
    history = eventually(
        lambda: count_of(found := rebalances(stage, group)) == 4 and found,
        "four moves to the second in status",
    )
    return first, second, history


def moves(stage, group, trigger=""):
    """Return how many partitions rebalances have moved; of one trigger, if it is named."""
    return count_of(rebalances(stage, group), trigger)


def count_of(found, trigger=""):
    """Return how many partitions these rebalances have moved; of one trigger, if it is named."""
    return sum(count for name, count, _ in found if trigger in ("", name))


def wait_for_a_loss(stage, group):
    """See that the last move was due to a member that did not come back within the delay.

    By what is on record: a delay that is over between two looks at the group has no Event.
    """
    eventually(
        lambda: rebalances(stage, group)[-1:] == [("member_lost", 4, 0)],
        "the delay was waited for",
    )


def deletion_cost(stage, pod):
    """Return what a pod's removal costs, as its ReplicaSet reads it."""
    body = stage.kube.get("Pod", stage.namespace, pod.name)
    return body["metadata"].get("annotations", {}).get("controller.kubernetes.io/pod-deletion-cost")


def moved(before, after):
    return {p for p in before if before[p] != after[p]}


def test_a_group_without_pods_is_ready_and_says_so(stage, brokers, group):
    made = stage.apply_group(group, QUEUE)
    stage.wait_for("ConsumerGroup", group, "Ready", "True", "NoMember")
    status = stage.status("ConsumerGroup", group)
    assert status["observedGeneration"] == made["metadata"]["generation"]
    assert status["phase"] == "Empty"
    assert status["members"] == {"active": 0, "standby": 0, "lost": 0, "refused": 0}
    assert status["partitions"] == {"ready": 0, "paused": 0, "unbound": 0, "unassigned": 8}


def test_consumers_may_be_there_before_their_group(stage, brokers, group):
    """Whoever applies a directory of YAML does not choose the order."""
    pod = stage.start_pod(brokers, stage.owner(group, group), group)
    eventually(lambda: "no consumer group" in pod.process.output(), "it waits for its group")
    selector = {"matchLabels": {"group": group}}
    body = stage.resource("ConsumerGroup", group, {"queue": QUEUE, "selector": selector})
    stage.kube.create(body)
    stage.wait_for_shares(QUEUE, group, pod)


@pytest.mark.req("SOL-23", "SOL-27")
def test_scaling_hands_partitions_over(stage, brokers, group):
    stage.apply_group(group, QUEUE)
    owner = stage.owner(group, group)
    first, second = (stage.start_pod(brokers, owner, group) for _ in range(2))
    before = stage.wait_for_shares(QUEUE, group, first, second)
    stage.wait_for("ConsumerGroup", group, "Ready", "True", "Stable")
    stage.wait_for_event("ConsumerGroup", group, "MemberJoined")
    eventually(
        lambda: (
            {each["pod"] for each in stage.status("ConsumerGroup", group)["assignments"]}
            == {first.name, second.name}
        ),
        "the pods in status",
    )

    third, fourth = (stage.start_pod(brokers, owner, group) for _ in range(2))
    after = stage.wait_for_shares(QUEUE, group, first, second, third, fourth)
    assert len(moved(before, after)) == 4, "no more than balance demands"

    for pod in (third, fourth):
        pod.delete()
    for pod in (third, fourth):
        pod.end()
    stage.wait_for_shares(QUEUE, group, first, second)
    stage.wait_for_event("ConsumerGroup", group, "RebalanceStarted")
    stage.wait_for_event("ConsumerGroup", group, "RebalanceCompleted")
    # Four; one more when the third has left before the fourth is told to.
    eventually(lambda: moves(stage, group, "member_left") in (4, 5), "the way back in status")


def test_a_handoff_that_runs_out_of_time_is_told(stage, brokers, group):
    """The first member takes every message and is never done with any."""
    stage.apply_group(group, QUEUE)
    owner = stage.owner(group, group)
    first = stage.start_consumer(owner.make_pod(), QUEUE, group, brokers, "--no-ack")
    first.report(is_ready=True)
    stage.wait_for_shares(QUEUE, group, first)
    stage.publish(QUEUE, brokers, [f"message {number}" for number in range(64)])
    eventually(lambda: first.process.output().count('"value"') >= 64, "all are in its hands")

    second = stage.start_pod(brokers, owner, group)
    stage.wait_for_shares(QUEUE, group, first, second)
    stage.wait_for_event("ConsumerGroup", group, "PartitionHandoffTimedOut")
    eventually(
        lambda: stage.status("ConsumerGroup", group)["rebalances"][-1]["timedOut"] > 0,
        "the count in status",
    )


def test_only_pods_that_match_and_are_ready_are_members(stage, brokers, group):
    stage.apply_group(group, QUEUE)
    member = stage.start_pod(brokers, stage.owner(group, group), group)
    stranger = stage.start_pod(brokers, stage.owner(f"{group}-x", "another"), group)
    unready = stage.start_pod(brokers, stage.owner(f"{group}-y", group), group, is_ready=False)
    stage.wait_for_shares(QUEUE, group, member)
    stage.stays(
        QUEUE,
        lambda: set(stage.assignment(QUEUE, group).values()) == {member.uid},
        "only the member has partitions",
    )
    assert stranger.process.is_running, "it keeps asking"

    unready.report(is_ready=True)
    stage.wait_for_shares(QUEUE, group, member, unready)


@pytest.mark.req("SOL-26")
def test_a_pod_that_ends_hands_over_before_it_is_gone(stage, brokers, group):
    """The pod is terminating, its process has not heard of it yet: a handoff, no delay."""
    stage.apply_group(group, QUEUE)
    owner = stage.owner(group, group)
    stay, leave = (stage.start_pod(brokers, owner, group) for _ in range(2))
    stage.wait_for_shares(QUEUE, group, stay, leave)

    stage.kube.delete("Pod", stage.namespace, leave.name, grace_s=30)
    stage.wait_for_shares(QUEUE, group, stay)
    assert leave.process.is_running
    leave.process.terminate()
    leave.end()


@pytest.mark.req("SOL-41")
def test_a_pod_that_is_gone_for_good_is_not_waited_for(stage, brokers, group):
    stage.apply_group(group, QUEUE)
    owner = stage.owner(group, group)
    stay, die = (stage.start_pod(brokers, owner, group) for _ in range(2))
    stage.wait_for_shares(QUEUE, group, stay, die)
    stage.wait_for_active(group, 2)

    die.vanish()
    stage.wait_for_shares(QUEUE, group, stay)
    stage.wait_for_event("ConsumerGroup", group, "MemberLeft")


def test_a_pod_that_is_removed_by_force_may_still_run(stage, brokers, group):
    stage.apply_group(group, QUEUE, rebalance=SHORT)
    owner = stage.owner(group, group)
    stay, lost = (stage.start_pod(brokers, owner, group) for _ in range(2))
    stage.wait_for_shares(QUEUE, group, stay, lost)

    lost.remove()  # the node is out of reach: nobody says that its container has ended
    lost.process.kill()
    stage.wait_for_shares(QUEUE, group, stay)
    wait_for_a_loss(stage, group)


def test_the_next_pod_of_a_stateful_set_gets_the_partitions_of_the_last(stage, brokers, group):
    stage.apply_group(group, QUEUE)
    owner = stage.owner(group, group, kind="StatefulSet")
    pods = [owner.make_pod() for _ in range(2)]
    for pod in pods:
        stage.start_consumer_as(pod, QUEUE, group, brokers, {"PARTQ_MEMBER": pod.name})
        pod.report(is_ready=True)
    names = {pod.name for pod in pods}
    before = eventually(
        lambda: (
            (found := stage.assignment(QUEUE, group)) and set(found.values()) == names and found
        ),
        "both have partitions",
    )
    stage.wait_for("ConsumerGroup", group, "Ready", "True", "Stable")

    pods[1].vanish()
    stage.wait_for_event("ConsumerGroup", group, "RebalanceScheduled")
    assert stage.assignment(QUEUE, group) == before
    again = owner.make_pod(pods[1].name)
    assert again.uid != pods[1].uid
    stage.start_consumer_as(again, QUEUE, group, brokers, {"PARTQ_MEMBER": again.name})
    again.report(is_ready=True)
    stage.wait_for("ConsumerGroup", group, "Ready", "True", "Stable")
    stage.wait_for_event("ConsumerGroup", group, "RebalanceCancelled")
    assert stage.assignment(QUEUE, group) == before


@pytest.mark.req("SOL-37")
def test_a_container_that_is_restarted_in_time_keeps_its_partitions(stage, brokers, group):
    stage.apply_group(group, QUEUE)
    owner = stage.owner(group, group)
    stay, crash, history = start_two(stage, brokers, owner, group)
    before = stage.wait_for_shares(QUEUE, group, stay, crash)
    stage.wait_for("ConsumerGroup", group, "Ready", "True", "Stable")

    crash.crash()
    stage.wait_for("ConsumerGroup", group, "PartitionsAssigned", "False", "WaitingForMember")
    assert stage.status("ConsumerGroup", group)["phase"] == "Waiting"
    crash.restart()
    after = stage.wait_for_shares(QUEUE, group, stay, crash)
    assert after == before
    stage.wait_for("ConsumerGroup", group, "Ready", "True", "Stable")
    assert rebalances(stage, group) == history


def test_a_rollout_moves_each_partition_once(stage, brokers, group):
    stage.apply_group(group, QUEUE)
    owner = stage.owner(group, group)
    *old, _ = start_two(stage, brokers, owner, group)
    before = moves(stage, group)

    owner.roll_out("7b8c4e")
    new = []
    for pod in old:
        new.append(stage.start_pod(brokers, owner, group))
        eventually(
            lambda: stage.status("ConsumerGroup", group)["members"]["standby"] == 1,
            "the newcomer stands by",
        )
        pod.delete()
        pod.end()
    stage.wait_for_shares(QUEUE, group, *new)
    eventually(
        lambda: moves(stage, group) == before + 8,
        "eight moves of eight partitions",
    )


@pytest.mark.req("MEM-13")
def test_a_pod_on_a_cordoned_node_gets_nothing_until_the_node_is_well(stage, brokers, group):
    stage.apply_group(group, QUEUE)
    owner = stage.owner(group, group)
    stay = stage.start_pod(brokers, owner, group)
    stage.wait_for_shares(QUEUE, group, stay)
    with stage.node(f"{stage.namespace}-{group}", unschedulable=True) as node:
        doomed = stage.start_consumer(owner.make_pod(node=node), QUEUE, group, brokers)
        doomed.report(is_ready=True)
        eventually(
            lambda: stage.status("ConsumerGroup", group)["members"]["standby"] == 1,
            "it is connected",
        )
        stage.stays(
            QUEUE,
            lambda: set(stage.assignment(QUEUE, group).values()) == {stay.uid},
            "it gets nothing",
        )
    stage.wait_for_shares(QUEUE, group, stay, doomed)


@pytest.mark.req("SOL-29", "MEM-14")
def test_more_pods_than_partitions_stand_by(stage, brokers, group):
    stage.apply_group(group, QUEUE, type="Exclusive")
    owner = stage.owner(group, group)
    first = stage.start_pod(brokers, owner, group)
    eventually(lambda: set(stage.assignment(QUEUE, group).values()) == {first.uid}, "it has all")
    second = stage.start_pod(brokers, owner, group)
    eventually(
        lambda: stage.status("ConsumerGroup", group).get("members", {}).get("standby") == 1,
        "the second stands by",
    )
    assert set(stage.assignment(QUEUE, group).values()) == {first.uid}
    eventually(lambda: deletion_cost(stage, first) == "1", "what it costs to remove the first")
    assert deletion_cost(stage, second) is None, "nothing: that is so without a word"

    first.vanish()
    eventually(
        lambda: set(stage.assignment(QUEUE, group).values()) == {second.uid}, "it takes over"
    )


def test_a_timer_knows_nothing_of_pods(stage, brokers, group):
    stage.apply_group(group, QUEUE, rebalance={**SHORT, "policy": "Timer"})
    owner = stage.owner(group, group)
    stay, die = (stage.start_pod(brokers, owner, group) for _ in range(2))
    stage.wait_for_shares(QUEUE, group, stay, die)
    die.vanish()
    stage.wait_for_shares(QUEUE, group, stay)
    wait_for_a_loss(stage, group)
