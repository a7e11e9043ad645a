"""What goes wrong is told by a condition and an Event, and mended without a restart."""

import asyncio
import json
import shlex
import urllib.error
import urllib.request

import pytest
import redis

from partq.testing.redis_server import RedisServer
from tests.kube.api_server.client import ApiError
from tests.kube.api_server.processes import eventually
from tests.undecodable import publish_undecodable

SMALL = {"partitions": 2, "brokers": {"replicas": 1}}


@pytest.fixture(scope="module", autouse=True)
def operator(stage):
    return stage.start_operator()


@pytest.fixture
def own_redis(tmp_path):
    """A Redis that a test may stop; it is not started yet."""
    with RedisServer() as server:
        yield server


def at(server):
    """Return the spec of a queue that is stored there."""
    return {**SMALL, "redis": {"url": server.url}}


CLERKS = {"type": "Session", "session": {"lockSeconds": 5}}


@pytest.fixture(scope="module")
def clerks(stage):
    stage.apply_queue("typed")
    stage.serve("typed")
    stage.apply_group("clerks", "typed", **CLERKS)
    return "clerks"


def refusal_of(stage, group, spec):
    """Change fields of the group, and return what the server says against it; None: it takes it."""
    try:
        stage.kube.patch("ConsumerGroup", stage.namespace, group, {"spec": spec})
    except ApiError as error:
        return f"{error.status} {error}"
    return None


def wait_for_trouble(stage, kind, name, reason, *, is_stalled, sentence=""):
    condition = stage.wait_for(kind, name, "Ready", "False", reason)
    assert sentence in condition["message"]
    expected = "True" if is_stalled else "False"
    assert stage.condition(kind, name, "Stalled")[0] == expected
    stage.wait_for_event(kind, name, reason)


def wait_for_refusal(stage, group, reason, *, sentence=""):
    """Wait until a change of a group is refused; the group continues as it was."""
    condition = stage.wait_for("ConsumerGroup", group, "SpecValid", "False", reason)
    assert sentence in condition["message"]
    assert stage.condition("ConsumerGroup", group, "Stalled") == ("True", reason)
    assert stage.condition("ConsumerGroup", group, "Ready") == ("True", reason)
    assert stage.status("ConsumerGroup", group)["phase"] == "Empty"
    stage.wait_for_event("ConsumerGroup", group, reason)


def publish(url, queue, token, value):
    """Store a message; return the status of the answer."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(
        f"{url}/v1/queues/{queue}/messages", json.dumps({"value": value}).encode(), headers
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def test_a_quota_that_is_used_up(stage):
    stage.apply_queue("small", **SMALL, limits={"maxSpoolBytes": 2**20})
    brokers = stage.serve("small")
    url, token, small = brokers.urls[0], brokers.tokens["produce"], ("PartitionedQueue", "small")
    stage.wait_for(*small, "WithinQuota", "True")
    # What was just stored may count twice for a moment: one that is refused then may still fit.
    while stage.condition(*small, "WithinQuota") != ("False", "QuotaUsedUp"):
        assert publish(url, "small", token, "x" * 400_000) in (201, 429)
    stage.wait_for_event(*small, "QuotaUsedUp")
    assert stage.condition("PartitionedQueue", "small", "Ready")[0] == "True"

    more = {"spec": {"limits": {"maxSpoolBytes": 2**23}}}
    stage.kube.patch("PartitionedQueue", stage.namespace, "small", more)
    stage.wait_for("PartitionedQueue", "small", "WithinQuota", "True")
    stage.wait_for_event("PartitionedQueue", "small", "Recovered")


@pytest.mark.req("PUL-59")
def test_dead_letters_that_have_nowhere_to_go(stage):
    """What is not acknowledged in time is one at once; its queue is not there."""
    stage.apply_queue("mail", **SMALL)
    brokers = stage.serve("mail")
    ack = {"timeoutSeconds": 0.5, "tickSeconds": 0.25, "maxRedeliveries": 0}
    stage.apply_group("postman", "mail", ack=ack)
    stage.publish("mail", brokers, ["poison"])
    with stage.consumers():
        pod = stage.owner("postman", "postman").make_pod()
        stage.start_consumer(pod, "mail", "postman", brokers, "--no-ack")
        pod.report(is_ready=True)
        blocked = stage.wait_for(
            "ConsumerGroup", "postman", "DeadLettersStored", "False", "DeadLettersBlocked"
        )
        target = "mail-postman-dlq"
        assert (
            f"queue {stage.namespace}/{target}: not found in the Redis of mail"
            in blocked["message"]
        )
        stage.wait_for("ConsumerGroup", "postman", "Ready", "False", "DeadLettersBlocked")
        stage.wait_for_event("ConsumerGroup", "postman", "DeadLettersBlocked")

        create = {"spec": {"deadLetter": {"create": True}}}
        stage.kube.patch("ConsumerGroup", stage.namespace, "postman", create)
        stage.wait_for_event("PartitionedQueue", "mail", "DeadLetterQueueCreated")
        made = stage.kube.get("PartitionedQueue", stage.namespace, target)
        assert "ownerReferences" not in made["metadata"], "dead letters outlive what they are of"
        assert made["metadata"]["labels"]["partq.dev/dead-letters-of"] == "mail"
        assert (made["spec"]["partitions"], made["spec"]["brokers"]["replicas"]) == (2, 1)
        stage.serve(target)
        stage.wait_for("ConsumerGroup", "postman", "DeadLettersStored", "True")
        stage.wait_for("ConsumerGroup", "postman", "Ready", "True", "Stable")
    stage.wait_for_event("ConsumerGroup", "postman", "Recovered")


def test_messages_that_do_not_decode_and_have_nowhere_to_go(stage):
    """They wait, which is told; the group continues, and stays Ready."""
    stage.apply_queue("parcels", **SMALL)
    brokers = stage.serve("parcels")
    stage.apply_group("readers", "parcels")
    where = brokers.urls[0], "parcels", brokers.tokens["produce"]
    index = asyncio.run(publish_undecodable(*where, count=3, partition_count=2))
    with stage.consumers():
        pod = stage.owner("readers", "readers").make_pod()
        stage.start_consumer(pod, "parcels", "readers", brokers)
        pod.report(is_ready=True)
        parked = stage.wait_for(
            "ConsumerGroup", "readers", "DeadLettersStored", "False", "DeadLettersParked"
        )
        told = f"3 dead letters wait in partition {index}, whose deliveries continue"
        assert told in parked["message"]
        assert "not found in the Redis of parcels" in parked["message"]
        stage.wait_for("ConsumerGroup", "readers", "Ready", "True")
        stage.wait_for_event("ConsumerGroup", "readers", "DeadLettersParked")

        create = {"spec": {"deadLetter": {"create": True}}}
        stage.kube.patch("ConsumerGroup", stage.namespace, "readers", create)
        stage.wait_for_event("PartitionedQueue", "parcels", "DeadLetterQueueCreated")
        stage.serve("parcels-readers-dlq")
        stage.wait_for("ConsumerGroup", "readers", "DeadLettersStored", "True")
    stage.wait_for_event("ConsumerGroup", "readers", "Recovered")


def test_a_group_of_a_queue_that_is_not_there(stage):
    body = {"queue": "later", "selector": {"matchLabels": {"group": "early"}}}
    stage.kube.create(stage.resource("ConsumerGroup", "early", body))
    wait_for_trouble(stage, "ConsumerGroup", "early", "QueueNotFound", is_stalled=True)
    stage.apply_queue("later")
    stage.serve("later")
    stage.wait_for("ConsumerGroup", "early", "Ready", "True", "NoMember")


def test_groups_of_a_queue_that_is_not_accepted_say_one_thing(stage):
    """Then the queue is mended, served, and broken again, which changes nothing for them."""
    memory = {"limits": {"memory": "64Mi"}}
    wrong = {"replicas": 1, "resources": memory, "limits": {"pendingBytes": 2**30}}
    stage.apply_queue("wrong", brokers=wrong)
    stage.wait_for("PartitionedQueue", "wrong", "SpecValid", "False", "InvalidSpec")
    for name in ("one", "two"):
        body = {"queue": "wrong", "selector": {"matchLabels": {"group": name}}}
        stage.kube.create(stage.resource("ConsumerGroup", name, body))
    sentence = "queue wrong is not accepted: spec.brokers.limits: got"
    for name in ("one", "two"):
        ready = stage.wait_for("ConsumerGroup", name, "Ready", "False", "QueueNotReady")
        assert ready["message"].startswith(sentence)
        stage.wait_for_event("ConsumerGroup", name, "QueueNotReady")
        assert set(stage.events("ConsumerGroup", name)) == {"QueueNotReady"}

    right = {"spec": {"brokers": {"limits": None}}}
    stage.kube.patch("PartitionedQueue", stage.namespace, "wrong", right)
    stage.serve("wrong")
    for name in ("one", "two"):
        stage.wait_for("ConsumerGroup", name, "Ready", "True", "NoMember")
    broken = {"spec": {"brokers": wrong}}
    stage.kube.patch("PartitionedQueue", stage.namespace, "wrong", broken)
    stage.wait_for("PartitionedQueue", "wrong", "Ready", "True", "InvalidSpec")
    for name in ("one", "two"):
        assert stage.condition("ConsumerGroup", name, "Ready") == ("True", "NoMember")
        assert stage.condition("ConsumerGroup", name, "SpecValid")[0] == "True"


def test_a_spec_that_only_the_operator_can_judge(stage):
    """Servers before 1.25 know no rules over several fields."""
    stage.apply_queue("judged")
    stage.serve("judged")
    stage.apply_group("picky", "judged")
    bad = {"spec": {"type": "Exclusive", "strategy": "range"}}
    stage.kube.patch("ConsumerGroup", stage.namespace, "picky", bad)
    wait_for_refusal(stage, "picky", "InvalidSpec", sentence="strategy")
    good = {"spec": {"type": "Partitioned", "strategy": "range"}}
    stage.kube.patch("ConsumerGroup", stage.namespace, "picky", good)
    stage.wait_for("ConsumerGroup", "picky", "Ready", "True")

    stage.kube.patch("ConsumerGroup", stage.namespace, "picky", {"spec": {"start": "Latest"}})
    wait_for_refusal(stage, "picky", "StartImmutable")
    stage.kube.patch("ConsumerGroup", stage.namespace, "picky", {"spec": {"start": "Earliest"}})
    stage.wait_for("ConsumerGroup", "picky", "Ready", "True")

    stage.kube.patch("ConsumerGroup", stage.namespace, "picky", {"spec": {"queue": "elsewhere"}})
    wait_for_refusal(stage, "picky", "QueueImmutable")
    stage.kube.patch("ConsumerGroup", stage.namespace, "picky", {"spec": {"queue": "judged"}})
    stage.wait_for("ConsumerGroup", "picky", "Ready", "True")


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"type": "Shared", "session": None}, "stays so"),
        ({"type": "Partitioned", "session": None}, "stays so"),
        ({"type": "Shared"}, "session"),
        ({"rebalance": {"standby": "AtOnce"}}, "standby"),
    ],
)
def test_what_the_type_of_a_group_does_not_have(stage, clerks, spec, sentence):
    """Servers from 1.25 on refuse it; with an older one the operator says so, and goes on."""
    refusal = refusal_of(stage, clerks, spec)
    if refusal is not None:
        assert refusal.startswith("422")
        assert sentence in refusal
        return
    wait_for_refusal(stage, clerks, "InvalidSpec", sentence=sentence)
    assert refusal_of(stage, clerks, {**CLERKS, "rebalance": {"standby": None}}) is None
    stage.wait_for("ConsumerGroup", clerks, "Ready", "True")


@pytest.mark.req("AZR-51")
def test_redis_is_away_and_comes_back(stage, own_redis, tmp_path):
    own_redis.start(tmp_path)
    spec = at(own_redis)
    own_redis.kill()
    stage.kube.create(stage.resource("PartitionedQueue", "waiting", spec))
    wait_for_trouble(
        stage,
        "PartitionedQueue",
        "waiting",
        "StoreUnreachable",
        is_stalled=False,
        sentence=own_redis.url.removeprefix("redis://").partition("/")[0],
    )
    own_redis.start(tmp_path)
    stage.serve("waiting")
    assert not {"BrokersMissing", "PartitionsUnserved"} & set(
        stage.events("PartitionedQueue", "waiting")
    ), "brokers that start are no trouble"
    stage.wait_for("PartitionedQueue", "waiting", "StoreDurable", "True")

    own_redis.kill()
    stage.wait_for("PartitionedQueue", "waiting", "StoreDurable", "Unknown")
    stage.wait_for("PartitionedQueue", "waiting", "Ready", "False")
    own_redis.start(tmp_path)
    stage.wait_for("PartitionedQueue", "waiting", "Ready", "True")


def test_a_redis_that_evicts_is_not_used(stage, own_redis, tmp_path):
    own_redis.start(tmp_path, config={"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"})
    stage.kube.create(stage.resource("PartitionedQueue", "evicted", at(own_redis)))
    wait_for_trouble(
        stage,
        "PartitionedQueue",
        "evicted",
        "StoreUnusable",
        is_stalled=True,
        sentence="allkeys-lru",
    )
    with redis.Redis.from_url(own_redis.url) as connection:
        connection.config_set("maxmemory-policy", "noeviction")
    stage.serve("evicted")


def test_a_redis_that_keeps_nothing_is_used_and_told_of(stage, own_redis, tmp_path):
    own_redis.start(tmp_path, config={"appendonly": "no"})
    stage.kube.create(stage.resource("PartitionedQueue", "forgetful", at(own_redis)))
    stage.serve("forgetful")
    stage.wait_for("PartitionedQueue", "forgetful", "StoreDurable", "False", "NotSynced")
    stage.wait_for_event("PartitionedQueue", "forgetful", "NotSynced")

    own_redis.kill()
    own_redis.start(tmp_path, config={"appendonly": "no"})
    wait_for_trouble(
        stage,
        "PartitionedQueue",
        "forgetful",
        "StoreEmpty",
        is_stalled=True,
        sentence="expected its 2 partitions",
    )
    with redis.Redis.from_url(own_redis.url) as connection:
        assert connection.keys("*@*:layout") == [], "nothing begins empty there"


def test_a_queue_does_not_move_with_its_url(stage, own_redis, tmp_path):
    """Without the annotation it stays where it is; with it, it begins empty at the new place."""
    stage.kube.create(stage.resource("PartitionedQueue", "settled", SMALL))
    brokers = stage.serve("settled")
    place = stage.status("PartitionedQueue", "settled")["store"]
    own_redis.start(tmp_path)
    other = {"spec": {"redis": {"url": own_redis.url}}}
    stage.kube.patch("PartitionedQueue", stage.namespace, "settled", other)
    condition = stage.wait_for(
        "PartitionedQueue", "settled", "SpecValid", "False", "RedisImmutable"
    )
    assert place in condition["message"]
    assert publish(brokers.urls[0], "settled", brokers.tokens["produce"], "here") == 201
    with redis.Redis.from_url(own_redis.url) as connection:
        assert connection.dbsize() == 0

    new = own_redis.url.removeprefix("redis://").partition("/")[0]
    stage.annotate("PartitionedQueue", "settled", redis=new)
    stage.wait_for("PartitionedQueue", "settled", "SpecValid", "True")
    eventually(
        lambda: stage.status("PartitionedQueue", "settled").get("store") == new, "the new place"
    )


def test_a_redis_that_has_the_data_of_another_clusters_queue(stage, own_redis, tmp_path):
    own_redis.start(tmp_path)
    with redis.Redis.from_url(own_redis.url) as connection:
        key = f"kube-troubles:{{{stage.namespace}/taken}}:lives"
        connection.hset(key, mapping={"current": "deadbeef", "deadbeef": "1"})
    stage.kube.create(stage.resource("PartitionedQueue", "taken", at(own_redis)))
    wait_for_trouble(
        stage,
        "PartitionedQueue",
        "taken",
        "StoreOwnedByAnother",
        is_stalled=True,
        sentence="deadbeef",
    )
    # The administrator knows that no cluster has it any more, and does what the message says.
    message = stage.wait_for("PartitionedQueue", "taken", "Ready", "False")["message"]
    program, *command = shlex.split(message.partition("its name: ")[2])
    assert program == "redis-cli"
    with redis.Redis.from_url(own_redis.url) as connection:
        assert connection.execute_command(*command) == 1
    stage.serve("taken")
    with redis.Redis.from_url(own_redis.url) as connection:
        assert connection.hget(key, "deadbeef") == b"1", "nothing else is removed"


def test_a_secret_that_is_missing_may_come_later(stage):
    spec = {**SMALL, "redis": {"secretRef": {"name": "redis-of-mine"}}}
    stage.kube.create(stage.resource("PartitionedQueue", "secretive", spec))
    wait_for_trouble(
        stage,
        "PartitionedQueue",
        "secretive",
        "SecretMissing",
        is_stalled=True,
        sentence="redis-of-mine",
    )
    stage.kube.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "redis-of-mine", "namespace": stage.namespace},
            "stringData": {"url": stage.redis_url},
        }
    )
    stage.serve("secretive")


def test_an_object_of_somebody_else_is_not_touched(stage):
    made = stage.kube.create(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "crowded-partq", "namespace": stage.namespace},
            "spec": {"ports": [{"port": 80}]},
        }
    )
    stage.apply_queue("crowded")
    wait_for_trouble(
        stage,
        "PartitionedQueue",
        "crowded",
        "NameTaken",
        is_stalled=True,
        sentence="crowded-partq",
    )
    after = stage.kube.get("Service", stage.namespace, "crowded-partq")
    assert after["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    stage.kube.delete("Service", stage.namespace, "crowded-partq")
    stage.serve("crowded")


def test_brokers_that_do_not_answer(stage):
    stage.apply_queue("mute")
    brokers = stage.serve("mute", lease_s=3)
    for pod in brokers.pods:
        pod.crash()
    stage.wait_for("PartitionedQueue", "mute", "Ready", "False")
    stage.wait_for("PartitionedQueue", "mute", "BrokersReady", "False", "BrokersMissing")
    eventually(
        lambda: stage.status("PartitionedQueue", "mute")["partitions"]["ready"] == 0,
        "no partition is served",
    )
    for pod in brokers.pods:
        pod.restart()
    stage.wait_for("PartitionedQueue", "mute", "Ready", "True")
    stage.wait_for_event("PartitionedQueue", "mute", "Recovered")


def test_a_broker_that_does_not_answer_the_operator(stage):
    """It serves consumers and producers, but has lost the operator's token."""
    stage.apply_queue("deaf")
    brokers = stage.serve("deaf", lease_s=3)
    text = brokers.tokens_file.read_text()
    grants = [grant for grant in json.loads(text) if grant["role"] != "admin"]
    put_into(brokers.tokens_file, json.dumps(grants))
    wait_for_trouble(
        stage,
        "PartitionedQueue",
        "deaf",
        "BrokerUnreachable",
        is_stalled=False,
        sentence="deaf-broker-0",
    )
    put_into(brokers.tokens_file, text)
    stage.wait_for("PartitionedQueue", "deaf", "Ready", "True")


def put_into(file, text):
    """Replace a mounted file in one step, as the kubelet does."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)
