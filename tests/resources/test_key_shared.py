"""Groups of the type KeyShared in resources: what they are, and what is refused."""

import pytest

from partq.errors import SettingsError
from partq.resources import effective_group, parse_resources
from tests.resources.test_resources import GROUP, QUEUE


def parsed(spec: str):
    return parse_resources(QUEUE + "---" + GROUP + f"spec: {{queue: orders, {spec}}}")


def test_the_order_is_key_and_parts_have_a_default():
    resources = parsed("type: KeyShared")
    spec = effective_group(resources.groups[0], resources.queues[0])
    assert spec["keyShared"] == {"parts": 16, "hashRange": "Balanced"}
    assert spec["nack"]["order"] == "Key"


def test_keys_of_shared_partitions_wait_whatever_the_order_is_said_to_be():
    ack = "{maxSpan: 30000, maxRedeliveries: 1, onExhausted: Block}"
    (read,) = parsed(f"type: KeyShared, ack: {ack}").groups
    assert (read.spec.ack.max_span, read.spec.ack.on_exhausted) == (30_000, "Block")


def test_other_groups_say_nothing_of_parts():
    resources = parsed("type: Failover")
    assert "keyShared" not in effective_group(resources.groups[0], resources.queues[0])


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            "type: KeyShared, keyShared: {parts: 3}",
            "keyShared.parts: got 3, expected one of 1, 2, 4, 8, 16, 32, 64",
        ),
        ("type: KeyShared, keyShared: {parts: true}", "parts: got 'true', expected one of 1,"),
        ("type: KeyShared, keyShared: {hashRange: Even}", "got 'Even', expected one of Bal"),
        ("keyShared: {}", "spec.keyShared: got it with the type 'Partitioned', expected it to be"),
        (
            "type: KeyShared, nack: {order: Free}",
            "spec.nack.order: got 'Free' with the type 'KeyShared', expected 'Key', or nothing",
        ),
        (
            "type: KeyShared, strategy: sticky",
            "spec.strategy: got 'sticky' with the type 'KeyShared', expected it to be left out",
        ),
        (
            "type: KeyShared, assignment: Client",
            "spec.assignment: got 'Client' with the type 'KeyShared', expected 'Server'",
        ),
    ],
)
def test_what_does_not_fit_is_refused(spec, sentence):
    with pytest.raises(SettingsError) as caught:
        parsed(spec)
    assert sentence in caught.value.message
