"""Groups of the type Session in resources: what they are, and what is refused."""

import pytest

from partq.errors import SettingsError
from partq.resources import effective_group, parse_resources
from tests.resources.test_resources import GROUP, QUEUE


def parsed(spec: str):
    return parse_resources(QUEUE + "---" + GROUP + f"spec: {{queue: orders, {spec}}}")


def test_sessions_have_defaults_and_the_order_is_key():
    resources = parsed("type: Session")
    spec = effective_group(resources.groups[0], resources.queues[0])
    assert spec["session"] == {"lockSeconds": 60, "maxStateBytes": 65_536, "maxSessions": 10_000}
    assert spec["nack"]["order"] == "Key"


def test_the_bound_of_sessions_is_that_of_states():
    resources = parsed("type: Session, session: {maxSessions: 50, lockSeconds: 5}")
    spec = effective_group(resources.groups[0], resources.queues[0])
    assert spec["ack"]["maxStates"] == spec["session"]["maxSessions"] == 50


def test_other_groups_say_nothing_of_sessions():
    resources = parsed("type: KeyShared")
    assert "session" not in effective_group(resources.groups[0], resources.queues[0])


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            "type: Session, session: {lockSeconds: 4}",
            "spec.session.lockSeconds: got 4, expected a number from 5 to 300",
        ),
        (
            "type: Session, session: {lockSeconds: 301}",
            "spec.session.lockSeconds: got 301, expected a number from 5 to 300",
        ),
        (
            "type: Session, session: {maxStateBytes: 65537}",
            "maxStateBytes: got 65537, expected a whole number from 1 to 65536",
        ),
        (
            "type: Session, session: {maxSessions: 100001}",
            "maxSessions: got 100001, expected a whole number from 1 to 100000",
        ),
        ("session: {}", "spec.session: got it with the type 'Partitioned', expected it to be left"),
        (
            "type: Session, keyShared: {}",
            "spec.keyShared: got it with the type 'Session', expected it to be left out",
        ),
        (
            "type: Session, nack: {order: Free}",
            "spec.nack.order: got 'Free' with the type 'Session', expected 'Key', or nothing",
        ),
        (
            "type: Session, strategy: failover",
            "spec.strategy: got 'failover' with the type 'Session', expected it to be left out",
        ),
        (
            "type: Session, assignment: Client",
            "spec.assignment: got 'Client' with the type 'Session', expected 'Server'",
        ),
        (
            "type: Session, ack: {maxRedeliveries: 3, onExhausted: Block}",
            "spec.ack.onExhausted: got 'Block' with the type 'Session', expected 'Skip'",
        ),
        (
            "type: Session, ack: {maxStates: 5}",
            "spec.ack.maxStates: got 5 with the type 'Session', expected it to be left out",
        ),
        (
            "type: Session, rebalance: {standby: AfterDelay}",
            "spec.rebalance.standby: got it with the type 'Session', expected it to be left out",
        ),
    ],
)
def test_what_does_not_fit_is_refused(spec, sentence):
    with pytest.raises(SettingsError) as caught:
        parsed(spec)
    assert sentence in caught.value.message
