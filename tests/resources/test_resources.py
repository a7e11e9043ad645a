"""The resources: defaults, and a clear sentence for everything that is wrong."""

from pathlib import Path

import pytest

from partq.errors import SettingsError
from partq.resources import (
    MAX_FILE_CHARS,
    ConsumerGroupSpec,
    PartitionedQueueSpec,
    effective_group,
    effective_queue,
    parse_resources,
)
from partq.resources.status import (
    ConsumerGroupStatus,
    PartitionedQueueStatus,
    PodAssignment,
    RebalanceStatus,
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "queue.yaml"

QUEUE = """
apiVersion: partq.dev/v1alpha1
kind: PartitionedQueue
metadata: {name: orders}
"""
GROUP = """
apiVersion: partq.dev/v1alpha1
kind: ConsumerGroup
metadata: {name: workers}
"""


def test_example_is_what_its_comments_say():
    resources = parse_resources(EXAMPLE.read_text(encoding="utf-8"))

    (queue,) = resources.queues
    (group,) = resources.groups_of(queue)
    assert (queue.key, queue.spec.partitions, queue.spec.brokers.replicas) == (
        ("default", "orders"),
        16,
        2,
    )
    assert (group.key, group.queue_key) == (("default", "workers"), queue.key)


@pytest.mark.req(
    "SOL-42",
    "SOL-U03",
    "SOL-U04",
    "SOL-U05",
    "SOL-U13",
    "PUL-15",
    "PUL-107",
    "PUL-134",
    "AZR-05",
    "AZR-08",
    "AZR-09",
    "AZR-64",
    "TUB-04",
)
def test_defaults():
    resources = parse_resources(QUEUE + "---" + GROUP + "spec: {queue: orders}")

    (queue,), (group,) = resources.queues, resources.groups
    assert effective_queue(queue, ["workers"]) == {
        "partitions": 16,
        "keylessPolicy": "Random",
        "brokers": {"replicas": 2},
        "rebalance": {
            "delaySeconds": 5,
            "maxHandoffSeconds": 3,
            "policy": "KubernetesAware",
            "standby": "AtOnce",
            "maxPausedPartitions": 0,
            "maxMovesPerMinute": 0,
            "minMoveIntervalSeconds": 0,
        },
        "limits": {
            "maxMessageBytes": 5 * 2**20,
            "maxSpoolBytes": None,
            "maxRetainedBytes": None,
            "maxUnackedPerFlow": 10_000,
        },
        "messageTTLSeconds": None,
        "retentionSeconds": 0,
        "duplicateDetection": None,
        "deadLetter": {"queue": None, "expired": False, "create": False},
        "audit": False,
        "groups": ["workers"],
    }
    effective = effective_group(group, queue)
    assert effective["ack"]["maxRedeliveries"] is None
    letters = {"queue": "orders-workers-dlq", "expired": False, "create": False}
    assert effective["deadLetter"] == letters
    assert (group.spec.type, group.spec.effective_strategy, effective["start"]) == (
        "Partitioned",
        "sticky",
        "Earliest",
    )
    assert "startAtMs" not in effective


@pytest.mark.req("PUL-57")
@pytest.mark.parametrize(
    ("of_queue", "of_group", "expected"),
    [
        pytest.param("graves", "", "graves", id="the queue's, for all its groups"),
        pytest.param("graves", "own", "own", id="the group's own"),
        pytest.param("", "own", "own", id="no other"),
    ],
)
def test_the_dead_letter_queue_has_the_name_that_it_is_given(of_queue, of_group, expected):
    queue_spec = f"spec: {{deadLetter: {{queue: {of_queue}}}}}\n" if of_queue else ""
    letter = f", deadLetter: {{queue: {of_group}}}" if of_group else ""
    text = QUEUE + queue_spec + "---" + GROUP + f"spec: {{queue: orders{letter}}}"
    resources = parse_resources(text)
    (queue,), (group,) = resources.queues, resources.groups
    assert effective_group(group, queue)["deadLetter"]["queue"] == expected


def test_every_field_is_described():
    def undescribed(schema, path):
        for name, field in schema.get("properties", {}).items():
            if "description" not in field and "$ref" not in field and name not in from_kubernetes:
                yield f"{path}.{name}"

    from_kubernetes = {"apiVersion", "kind"}
    (queue,) = parse_resources(QUEUE).queues
    (group,) = parse_resources(QUEUE + "---" + GROUP + "spec: {queue: orders}").groups
    for model in (queue, group):
        schema = model.model_json_schema()
        parts = {model.kind: schema, **schema["$defs"]}
        assert [hit for name, part in parts.items() for hit in undescribed(part, name)] == []


@pytest.mark.parametrize(
    ("type_", "strategy", "effective"),
    [
        ("Partitioned", "strategy: range", "range"),
        ("Failover", "", "failover"),
        ("Exclusive", "strategy: failover", "failover"),
    ],
)
def test_strategy(type_, strategy, effective):
    spec = f"spec:\n  queue: orders\n  type: {type_}\n  {strategy}\n"

    (group,) = parse_resources(QUEUE + "---" + GROUP + spec).groups

    assert group.spec.effective_strategy == effective


@pytest.mark.req("PUL-94", "PUL-97")
def test_same_names_in_two_namespaces():
    other = QUEUE.replace("name: orders", "name: orders, namespace: shop")
    resources = parse_resources(
        QUEUE + "---" + other + "---" + GROUP.replace("workers", "w") + "spec: {queue: orders}"
    )

    first, second = resources.queues
    assert (first.key, second.key) == (("default", "orders"), ("shop", "orders"))
    assert (len(resources.groups_of(first)), len(resources.groups_of(second))) == (1, 0)


@pytest.mark.req("PUL-95")
def test_a_namespace_has_any_number_of_queues():
    names = [f"orders-{number}" for number in range(1000)]
    text = "---".join(QUEUE.replace("name: orders", f"name: {name}") for name in names)
    assert [queue.key for queue in parse_resources(text).queues] == [("default", n) for n in names]


def queue(spec):
    return QUEUE + f"spec: {spec}"


def group(spec):
    return QUEUE + "---" + GROUP + f"spec: {spec}"


FIRST = "document 1 (PartitionedQueue orders): "
SECOND = "document 2 (ConsumerGroup workers): "


WRONG = [
    (
        queue("{redis: {}}"),
        "spec.redis.url: got both or neither of url and secretRef, expected one",
    ),
    (
        queue("{redis: {url: 'redis://:hunter2@redis'}}"),
        "spec.redis.url: got one with a user or a password",
    ),
    (
        queue("{redis: {url: 'redis://redis/0?password=hunter2'}}"),
        "spec.redis.url: invalid (not shown, it may hold a password); expected only the parameters",
    ),
    (
        queue("{redis: {url: 'rediss://redis?ssl_ca_certs=/etc/passwd'}}"),
        "spec.redis.url: invalid (not shown, it may hold a password); expected only the parameters",
    ),
    (queue("{redis: {url: 'http://redis'}}"), "spec.redis.url: got 'http://redis', expected a te"),
    (queue("{redis: {secretRef: {nam: x}}}"), "got an unknown field, expected only name, key"),
    (
        queue("{brokers: {limits: {maxConnection: 20}}}"),
        "spec.brokers.limits.maxConnection: got an unknown field, expected only pendingBytes, tail",
    ),
    (queue("{brokers: {tolerations: [{kee: x}]}}"), "spec.brokers.tolerations.0.kee: got an unkn"),
    (queue("{brokers: {resources: {requests: {cpu: a}}}}"), "spec.brokers.resources.requests.cpu"),
    (queue("{deletionPolicy: Keep}"), "got 'Keep', expected one of Delete, Retain"),
    (
        group("{queue: orders, selector: {}}"),
        "spec.selector.matchLabels: got no condition here or in match",
    ),
    (queue("{partitions: 0}"), FIRST + "spec.partitions: got 0, expected a whole number from"),
    (queue("{partitions: 4097}"), "got 4097, expected a whole number from 1 to 4096"),
    (queue("{partitions: '16'}"), "got '16', expected a whole number from 1 to 4096"),
    (queue("{partitions: true}"), "got True, expected a whole number"),
    (queue("{partitons: 16}"), "spec.partitons: got an unknown field, expected only partit"),
    (queue("{partitions: 16, partitions: 8}"), "the field 'partitions' is given twice"),
    (queue("{keylessPolicy: random}"), "got 'random', expected one of Random, RoundRobin"),
    (queue("{brokers: {replicas: 65}}"), "spec.brokers.replicas: got 65, expected a whole num"),
    (queue("{rebalance: {delaySeconds: -1}}"), "got -1, expected a number from 0"),
    (queue("{rebalance: {delaySeconds: .nan}}"), "got nan, expected a number from 0"),
    (queue("{rebalance: {maxHandoffSeconds: 3601}}"), "expected a number from 0 to 3600"),
    (queue("{limits: {maxMessageBytes: 1023}}"), "expected a whole number from 1024 to 157"),
    (queue("{limits: {maxSpoolBytes: 1}}"), "expected a whole number from 1048576"),
    (queue("{limits: {maxRetainedBytes: 1}}"), "expected a whole number from 1048576"),
    (queue("{retentionSeconds: -1}"), "retentionSeconds: got -1"),
    (
        queue("{duplicateDetection: {windowSeconds: 19}}"),
        "windowSeconds: got 19, expected a whole number from 20 to 604800",
    ),
    (
        queue("{duplicateDetection: {maxIdsPerPartition: 999}}"),
        "maxIdsPerPartition: got 999, expected a whole number from 1000 to 10000000",
    ),
    (queue("{limits: {maxUnackedPerFlow: 0}}"), "a whole number from 1 to 1000000"),
    (queue("7"), FIRST + "spec: got 7, expected an object"),
    (QUEUE + "status: {}", "status: got an unknown field, expected only apiVersion, kind"),
    (QUEUE.replace("orders", "Orders"), "metadata.name: got 'Orders', expected at most 45 of"),
    (QUEUE.replace("orders", "o" * 46), "metadata.name: got 'oooo"),
    (QUEUE.replace("v1alpha1", "v1"), "apiVersion: got 'partq.dev/v1', expected partq.dev/v1"),
    (QUEUE.replace("metadata: {name: orders}", ""), "metadata: got nothing, expected it to be"),
    (QUEUE.replace("PartitionedQueue", "Pod"), "document 1 (Pod orders): kind: got 'Pod', exp"),
    (QUEUE + "---" + QUEUE, "metadata.name: got a name that document 1 (PartitionedQueue ord"),
    (group("{}"), SECOND + "spec.queue: got nothing, expected it to be set"),
    (group("{queue: other}"), SECOND + "spec.queue: got 'other', expected a PartitionedQueue"),
    (group("{queue: orders, type: Common}"), "got 'Common', expected one of Partitioned, Ex"),
    (group("{queue: orders, strategy: best}"), "got 'best', expected one of sticky, range"),
    (
        group("{queue: orders, type: Failover, strategy: sticky}"),
        SECOND + "spec.strategy: got 'sticky', expected 'failover' for the type 'Failover'",
    ),
    (
        group("{queue: orders, assignment: Client, rebalance: {maxMovesPerMinute: 6}}"),
        SECOND + "spec.assignment: got 'Client' with rebalance.maxMovesPerMinute, expected it to",
    ),
    (
        group("{queue: orders, ack: {maxRedeliveries: 1, onExhausted: Block}}"),
        SECOND + "spec.ack.onExhausted: got 'Block' with nack.order 'Ordered', expected 'Skip'",
    ),
    (
        group("{queue: orders, ack: {maxSpan: 30000}}"),
        SECOND + "spec.ack.maxSpan: got 30000 with nack.order 'Ordered', expected it to be left",
    ),
    (
        group("{queue: orders, nack: {order: Free, maxParkedKeys: 5}}"),
        SECOND + "spec.nack.maxParkedKeys: got 5 with nack.order 'Free', expected it to be left",
    ),
    (
        group("{queue: orders, nack: {order: Key}, ack: {onExhausted: Quarantine}}"),
        SECOND + "spec.ack.onExhausted: got 'Quarantine' without ack.maxRedeliveries, expected",
    ),
    (group("{queue: orders, start: Now}"), "got 'Now', expected one of Earliest, Latest"),
    (queue("{partitions: }"), "partitions: got nothing, expected a whole number from 1 to 4096"),
    (queue("{rebalance: }"), FIRST + "spec.rebalance: got nothing, expected an object"),
    (GROUP + "spec: {queue: orders}", "document 1 (ConsumerGroup workers): spec.queue: got"),
    (
        queue("{deadLetter: {queue: orders}}"),
        FIRST + "spec.deadLetter.queue: got 'orders', the queue itself, expected another queue",
    ),
    (
        group("{queue: orders, deadLetter: {queue: orders}}"),
        SECOND + "spec.deadLetter.queue: got 'orders', the group's own queue, expected another",
    ),
    ("", "no PartitionedQueue: got none in the file, expected at least one"),
    ("just words", "document 1: got 'just words', expected an object"),
    ("{1: 2}", "the name of a field is not a text"),
    ("{[1]: 2}", "the name of a field is not a text"),
    ("a: {", "document 1, line 1, column 5: the YAML cannot be read"),
    (QUEUE + "---\na: \x00", "a character that YAML does not allow"),
    (QUEUE + "---\n&a {kind: *a}", "document 2: kind: got {'kind': {'kind'"),
    ("[" * 5000, "nested too deeply"),
    ("#" * (MAX_FILE_CHARS + 1), f"expected at most {MAX_FILE_CHARS}"),
    ("---\na\n" * 1001, "got more than 1000 documents"),
    ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        # The texts are too long for ids.
        pytest.param(text, sentence, id=f"{number}: {sentence[:60]}")
        for number, (text, sentence) in enumerate(WRONG)
    ],
)
def test_refused(text, sentence):
    with pytest.raises(SettingsError) as caught:
        parse_resources(text)

    assert sentence in caught.value.message
    assert len(caught.value.message) < 2000


def test_all_problems_are_named():
    with pytest.raises(SettingsError) as caught:
        parse_resources(group("{queue: other, type: Common, start: Now}"))

    assert len(caught.value.message.splitlines()) == 2


def test_every_field_is_documented():
    def leaves(schema, path, parts):
        for name, field in schema["properties"].items():
            options = [field, *field.get("anyOf", ())]
            references = [each["$ref"] for each in options if "$ref" in each]
            reference = references[0].rpartition("/")[2] if references else ""
            yield from (
                leaves(parts[reference], [*path, name], parts)
                if reference
                else [".".join([*path, name])]
            )

    text = (EXAMPLE.parents[1] / "docs" / "resources.md").read_text(encoding="utf-8")
    for part in (
        PartitionedQueueSpec,
        ConsumerGroupSpec,
        PartitionedQueueStatus,
        ConsumerGroupStatus,
        PodAssignment,
        RebalanceStatus,
    ):
        schema = part.model_json_schema()
        undocumented = [
            name for name in leaves(schema, [], schema.get("$defs", {})) if f"`{name}`" not in text
        ]
        assert undocumented == []


LETTERS = """
apiVersion: partq.dev/v1alpha1
kind: PartitionedQueue
metadata: {name: orders, namespace: shop}
spec:
  partitions: 3
  brokers: {replicas: 1, tolerations: [{key: spot, operator: Exists}]}
  limits: {maxMessageBytes: 4096, maxSpoolBytes: 1048576}
  messageTTLSeconds: 60
  redis: {url: "redis://redis.shop.svc:6379/0"}
  auth: {secretName: orders-own-tokens}
  tls: {secretName: orders-tls}
  deletionPolicy: Retain
  deadLetter: OF_QUEUE
---
apiVersion: partq.dev/v1alpha1
kind: ConsumerGroup
metadata: {name: workers, namespace: shop}
spec: {queue: orders, OF_GROUP}
"""


def queues_with(of_queue="{}", of_group="type: Partitioned"):
    text = LETTERS.replace("OF_QUEUE", of_queue).replace("OF_GROUP", of_group)
    return parse_resources(text).with_dead_letter_queues().queues


@pytest.mark.req("PUL-58", "PUL-59")
@pytest.mark.parametrize(("of_queue", "of_group", "made"), [
    pytest.param("{}", "ack: {maxRedeliveries: 0}", [], id="nobody asks for it"),
    pytest.param(
        "{create: true}", "type: Partitioned", ["orders-workers-dlq"], id="for undecodable messages"
    ),
    pytest.param(
        "{create: true}", "ack: {maxRedeliveries: 0}", ["orders-workers-dlq"], id="by the queue"
    ),
    pytest.param(
        "{}", "deadLetter: {create: true, expired: true, queue: old}", ["old"], id="by the group"
    ),
    pytest.param(
        "{create: true}",
        "ack: {maxRedeliveries: 5}, deadLetter: {queue: other}",
        [],
        id="the group's word stands in the place of the queue's",
    ),
])  # fmt: skip
def test_which_dead_letter_queues_are_made(of_queue, of_group, made):
    first, *others = queues_with(of_queue, of_group)
    assert (first.metadata.name, first.spec.partitions) == ("orders", 3)
    assert [queue.metadata.name for queue in others] == made


def test_a_dead_letter_queue_that_is_there_is_not_made():
    letters = QUEUE.replace("orders", "letters")
    declared = QUEUE + "spec: {deadLetter: {create: true, queue: letters}}\n---" + letters
    workers = GROUP + "spec: {queue: orders, ack: {maxRedeliveries: 5}}"
    queues = parse_resources(declared + "---" + workers).with_dead_letter_queues().queues
    assert [queue.metadata.name for queue in queues] == ["orders", "letters"]


@pytest.mark.req("PUL-58", "PUL-59")
def test_a_dead_letter_queue_that_is_made_is_run_as_its_origin_and_keeps_what_it_gets():
    origin, made = queues_with("{create: true}", "ack: {maxRedeliveries: 5}")
    assert made.key == ("shop", "orders-workers-dlq")
    spec, there = made.spec, origin.spec
    for field in ("partitions", "brokers", "redis", "tls", "deletion_policy"):
        assert getattr(spec, field) == getattr(there, field), field
    assert (spec.limits.max_message_bytes, spec.limits.max_spool_bytes) == (4096 + 1024, None)
    assert (spec.message_ttl_seconds, spec.auth.secret_name) == (None, None)
    assert spec.dead_letter.create is False


@pytest.mark.parametrize("wrong", ["{partitions: 0}", "7", "{redis: {}}"])
def test_a_queue_that_is_refused_is_no_error_of_its_groups(wrong):
    more = GROUP.replace("workers", "others") + "spec: {queue: orders}\n"
    text = queue(wrong) + "\n---" + GROUP + "spec: {queue: orders}\n---" + more
    with pytest.raises(SettingsError) as refusal:
        parse_resources(text)
    (line,) = refusal.value.message.splitlines()
    assert line.startswith(FIRST)
    with pytest.raises(
        SettingsError, match=r"spec\.queue: got 'elsewhere', expected a Partitioned"
    ):
        parse_resources(text + "---" + GROUP + "spec: {queue: elsewhere}")


TWO = QUEUE + "---" + QUEUE.replace("orders", "letters")


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(
            [
                "{queue: orders, deadLetter: {queue: letters}}",
                "{queue: letters, deadLetter: {queue: orders}}",
            ],
            id="of two groups",
        ),
        pytest.param(
            [
                "{queue: orders, deadLetter: {queue: third}}",
                "{queue: third, deadLetter: {queue: letters}}",
                "{queue: letters, deadLetter: {queue: orders}}",
            ],
            id="of three queues",
        ),
    ],
)
def test_dead_letters_that_would_come_back_are_refused(more):
    names = ["workers", "others", "last"][: len(more)]
    groups = [
        GROUP.replace("workers", name) + f"spec: {spec}"
        for name, spec in zip(names, more, strict=True)
    ]
    declared = [TWO, QUEUE.replace("orders", "third"), *groups]
    with pytest.raises(SettingsError) as refusal:
        parse_resources("\n---".join(declared))
    (line,) = refusal.value.message.splitlines()
    assert f"(ConsumerGroup {names[-1]}): spec.deadLetter.queue: got 'orders', whose" in line
    parse_resources("\n---".join(declared[:-1]))


def test_dead_letters_that_would_come_back_by_default_are_refused():
    queues = (
        QUEUE + "spec: {deadLetter: {queue: letters}}\n---" + QUEUE.replace("orders", "letters")
    )
    text = queues + "spec: {deadLetter: {queue: orders}}"
    with pytest.raises(
        SettingsError, match=r"\(PartitionedQueue letters\): spec\.deadLetter\.queue: got 'orders'"
    ):
        parse_resources(text)
    elsewhere = QUEUE.replace("orders", "letters").replace("name:", "namespace: other, name:")
    parse_resources(
        QUEUE
        + "spec: {deadLetter: {queue: letters}}\n---"
        + elsewhere
        + "spec: {deadLetter: {queue: orders}}"
    )
