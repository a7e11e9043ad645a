"""Who is not let into a group is told: at the group, by the broker, and once it is over."""

import json
import urllib.error
import urllib.request

import pytest

from tests.kube.api_server.processes import eventually

QUEUE = "jobs"


@pytest.fixture(scope="module")
def brokers(stage):
    stage.start_operator()
    stage.apply_queue(QUEUE)
    return stage.serve(QUEUE)


def pull(brokers, group, member):
    """Ask for messages as a member; return the status and the error's message."""
    request = urllib.request.Request(
        f"{brokers.urls[0]}/v1/queues/{QUEUE}/groups/{group}/pull",
        json.dumps({"member": member, "incarnation": "i"}).encode(),
        {"Authorization": f"Bearer {brokers.tokens['consume']}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["error"]["message"]


def refused(stage, group):
    """Return how many members status counts as refused, and those that it names."""
    status = stage.status("ConsumerGroup", group)
    count = status.get("members", {}).get("refused")
    return count, [each["reason"] for each in status.get("refusedMembers", ())]


def test_a_pod_that_the_selector_does_not_mean(stage, brokers):
    group = "workers"
    stage.apply_group(group, QUEUE, selector={"matchLabels": {"app": "right"}})
    with stage.consumers():
        pod = stage.owner("lost-ones", "wrong").make_pod()
        stage.start_consumer(pod, QUEUE, group, brokers)
        pod.report(is_ready=True)
        words = (
            f"pod {pod.name} of {stage.namespace} (group=wrong, pod-template-hash=5d7f9c) does not "
            "match app=right"
        )
        eventually(lambda: words in pod.process.output(), "its own log has the words")
        assert pod.process.is_running, "it is told while it waits"
        condition = stage.wait_for(
            "ConsumerGroup", group, "MembersAdmitted", "False", "MemberRefused"
        )
        assert words in condition["message"]
        assert stage.condition("ConsumerGroup", group, "Ready") == ("False", "MemberRefused")
        stage.wait_for_event("ConsumerGroup", group, "MemberRefused")
        assert refused(stage, group) == (1, [words])
        status, _ = eventually(
            lambda: (found := pull(brokers, group, pod.uid)) and words in found[1] and found,
            "the broker says why",
        )
        assert status == 403
        assert f"  {pod.uid} from 127.0.0.1: {words}" in stage.explain(QUEUE, group, brokers)
        explained = json.loads(stage.explain(QUEUE, group, brokers, "--json"))
        assert explained["refused"] == {
            pod.uid: {"address": "127.0.0.1", "reason": words, "is_final": True}
        }

        # Its labels are put right: it is let in, and nothing is left of the refusal.
        stage.kube.patch(
            "Pod", stage.namespace, pod.name, {"metadata": {"labels": {"app": "right"}}}
        )
        stage.wait_for_shares(QUEUE, group, pod)
        stage.wait_for("ConsumerGroup", group, "MembersAdmitted", "True")
        stage.wait_for_event("ConsumerGroup", group, "Recovered")
        eventually(lambda: refused(stage, group) == (0, []), "none is counted any more")
        assert "refused" not in stage.explain(QUEUE, group, brokers)


def test_a_refused_consumer_ends_with_the_words(stage, brokers):
    """As long as `--wait` says; its pod is started again, and people see why in its log."""
    stage.apply_group("closed", QUEUE, selector={"matchLabels": {"app": "right"}})
    with stage.consumers():
        pod = stage.owner("ended", "wrong").make_pod()
        stage.start_consumer(pod, QUEUE, "closed", brokers, "--wait", "2")
        pod.report(is_ready=True)
        eventually(lambda: not pod.process.is_running, "it gives up")
        assert f"pod {pod.name} of {stage.namespace} (group=wrong" in pod.process.output()
        assert "does not match app=right" in pod.process.output()
        assert "Traceback" not in pod.process.output()


def test_a_member_that_is_no_pod(stage, brokers):
    stage.apply_group("strangers", QUEUE)
    assert pull(brokers, "strangers", "laptop")[0] == 403
    words = f"member laptop is neither the uid of a pod of {stage.namespace} nor"

    def is_told():
        assert pull(brokers, "strangers", "laptop")[0] == 403
        (message,) = [
            each["message"]
            for each in stage.status("ConsumerGroup", "strangers")["conditions"]
            if each["type"] == "MembersAdmitted"
        ]
        return words in message

    eventually(is_told, "the condition says so")
    assert words in pull(brokers, "strangers", "laptop")[1]


def test_a_selector_that_leaves_bound_members_out(stage, brokers):
    group = "moved"
    stage.apply_group(group, QUEUE)
    with stage.consumers():
        pod = stage.owner(group, group).make_pod()
        stage.start_consumer(pod, QUEUE, group, brokers)
        pod.report(is_ready=True)
        stage.wait_for_shares(QUEUE, group, pod)
        changed = {"spec": {"selector": {"matchLabels": {"group": "nobody"}}}}
        stage.kube.patch("ConsumerGroup", stage.namespace, group, changed)
        condition = stage.wait_for(
            "ConsumerGroup", group, "MembersAdmitted", "False", "MemberNotSelected"
        )
        assert f"pod {pod.name} of {stage.namespace}" in condition["message"]
        assert "does not match group=nobody" in condition["message"]
        stage.wait_for_event("ConsumerGroup", group, "MemberNotSelected")
        assert stage.condition("ConsumerGroup", group, "Ready") == ("True", "Stable")
        stage.wait_for_shares(QUEUE, group, pod)
