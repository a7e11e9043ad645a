"""Groups of the type Shared in resources: what they are, and what is refused."""

import pytest

from partq.errors import SettingsError
from partq.resources import effective_group, parse_resources
from tests.resources.test_resources import GROUP, QUEUE


def parsed(spec: str):
    return parse_resources(QUEUE + "---" + GROUP + f"spec: {{queue: orders, {spec}}}")


def test_the_order_is_free_and_the_span_of_open_messages_may_be_set():
    resources = parsed("type: Shared, ack: {maxSpan: 5000}")
    spec = effective_group(resources.groups[0], resources.queues[0])
    assert (spec["nack"]["order"], spec["ack"]["maxSpan"]) == ("Free", 5000)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("strategy: sticky", "strategy: got 'sticky' with the type 'Shared', expected it to be"),
        ("nack: {order: Key}", "nack.order: got 'Key' with the type 'Shared', expected 'Free'"),
        ("keyShared: {parts: 4}", "keyShared: got it with the type 'Shared', expected it to be"),
        (
            "ack: {maxRedeliveries: 3, onExhausted: Block}",
            "ack.onExhausted: got 'Block' with the type 'Shared', expected 'Skip'",
        ),
        ("ack: {maxStates: 5}", "ack.maxStates: got 5 with the type 'Shared', expected it to be"),
        (
            "nack: {maxParkedKeys: 5}",
            "nack.maxParkedKeys: got 5 with the type 'Shared', expected it to be left out",
        ),
        (
            "rebalance: {standby: AtOnce}",
            "rebalance.standby: got it with the type 'Shared', expected it to be left out",
        ),
        ("assignment: Client", "assignment: got 'Client' with the type 'Shared', expected 'Serv"),
    ],
)
def test_what_does_not_fit_is_refused(spec, sentence):
    with pytest.raises(SettingsError) as caught:
        parsed(f"type: Shared, {spec}")
    assert sentence in caught.value.message
