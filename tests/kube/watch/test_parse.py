"""From bodies to values."""

import pytest

from partq.errors import SettingsError
from partq.kube.names import PAUSE, QueueKey
from partq.kube.watch import parse
from partq.kube.watch.parse import MemberName
from tests.kube.bodies import POD_UID, group_body, pod_body, queue_body


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        (POD_UID, MemberName(POD_UID, None, None)),
        (f"{POD_UID}/main", MemberName(POD_UID, None, "main")),
        (f"{POD_UID}.main", MemberName(POD_UID, None, "main")),
        (f"{POD_UID}-main", MemberName(POD_UID, None, "main")),
        (f"{POD_UID}-two-words", MemberName(POD_UID, None, "two-words")),
        (f"{POD_UID}main", MemberName(None, f"{POD_UID}main", None)),
        (f"{POD_UID}/", MemberName(None, POD_UID, None)),
        ("workers-0", MemberName(None, "workers-0", None)),
        ("workers-0/main", MemberName(None, "workers-0", "main")),
    ],
)
def test_member_name(member, expected):
    assert parse.member_name(member) == expected


def test_resources_are_read_from_what_the_api_server_sends():
    body = queue_body(partitions=8)
    assert parse.queue(body).spec.partitions == 8
    assert parse.queue_key(body) == QueueKey("shop", "orders")
    assert parse.group(group_body()).spec.selector.matches({"app": "workers", "more": "x"})


def test_a_queue_or_group_whose_dead_letters_stay_in_the_queue_is_refused():
    letters = {"deadLetter": {"queue": "orders"}}
    with pytest.raises(SettingsError, match=r"^spec\.deadLetter\.queue: got 'orders', the queue i"):
        parse.queue(queue_body(**letters))
    with pytest.raises(SettingsError, match=r"^spec\.deadLetter\.queue: got 'orders', the group's"):
        parse.group(group_body(**letters))


def test_a_queue_that_was_recorded_so_is_still_served():
    """With a dead-letter queue of the default name, until its spec is mended."""
    body = queue_body(deadLetter={"queue": "orders"})
    recorded = {"partitions": 8, "deadLetter": {"queue": "orders", "expired": True}}
    letters = parse.recorded_queue(body, recorded).spec.dead_letter
    assert (letters.queue, letters.expired) == (None, True)


def test_fields_of_a_newer_schema_stop_no_older_operator():
    limits = {"maxMessageBytes": 2048, "maxAgeSeconds": 60}
    queue = parse.queue(queue_body(partitions=4, audit=False, limits=limits))
    assert queue.spec.partitions == 4
    assert queue.spec.limits.max_message_bytes == 2048
    group = parse.group(group_body(nack={"order": "Free", "graceSeconds": 3}))
    assert group.spec.selector.matches({"app": "workers"})


@pytest.mark.parametrize(
    ("read", "body", "sentence"),
    [
        (parse.queue, queue_body(partitions=0), "spec.partitions: got 0"),
        (parse.queue, queue_body(redis={"url": "redis://a", "secretRef": {"name": "b"}}), "url: "),
        (parse.queue, group_body(), "kind: got ConsumerGroup"),
        (parse.group, queue_body(), "kind: got PartitionedQueue"),
        (parse.group, group_body(selector=None), "spec.selector: got nothing"),
        (parse.group, group_body(type="Exclusive", strategy="range"), "spec.strategy: got 'range'"),
    ],
)
def test_what_is_wrong_becomes_a_sentence(read, body, sentence):
    with pytest.raises(SettingsError) as caught:
        read(body)
    assert sentence in caught.value.message


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (group_body(queue="orders"), QueueKey("shop", "orders")),
        (group_body(queue="other", status={"queue": "orders"}), QueueKey("shop", "orders")),
        (group_body(queue=7), None),
    ],
)
def test_a_group_stays_at_the_queue_that_it_has_had(body, expected):
    assert parse.queue_of_group(body) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(None, False), ("", True), ("true", True), ("False", False)]
)
def test_annotations_are_on_unless_they_say_false(value, expected):
    annotations = {} if value is None else {PAUSE: value}
    assert parse.is_on(queue_body(annotations=annotations), PAUSE) is expected


def test_a_pod_of_a_deployment():
    pod = parse.pod(pod_body())
    assert (pod.addresses, pod.is_ready, pod.has_ended) == (("10.0.0.7",), True, False)
    assert (pod.keeps_name, pod.makes_successor) == (False, True)
    assert (pod.deployment, pod.template) == ("workers", "5d7f9c")


@pytest.mark.parametrize(
    ("body", "is_terminating"),
    [
        pytest.param(pod_body(), False, id="lives"),
        pytest.param(pod_body(deletion_grace=30), True, id="given time to end"),
        pytest.param(pod_body(deletion_grace=0), False, id="removed by force"),
    ],
)
def test_is_terminating(body, is_terminating):
    assert parse.pod(body).is_terminating is is_terminating


@pytest.mark.parametrize(
    ("owner", "keeps_name", "makes_successor"),
    [
        ("ReplicaSet", False, True),
        ("Job", False, True),
        ("StatefulSet", True, False),
        (None, False, False),
    ],
)
def test_owners(owner, keeps_name, makes_successor):
    pod = parse.pod(pod_body(owner=owner))
    assert (pod.keeps_name, pod.makes_successor) == (keeps_name, makes_successor)


def test_a_pod_without_status_is_no_trouble():
    body = pod_body(ip=None)
    del body["status"]
    pod = parse.pod(body)
    assert (pod.addresses, pod.is_ready, pod.has_ended) == ((), False, False)
