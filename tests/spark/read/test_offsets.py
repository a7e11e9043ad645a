"""How positions are kept, for any positions."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partq.core.model import PartitionId
from partq.errors import BadRequestError
from partq.spark.read.offsets import (
    OffsetsOrigin,
    QueueLife,
    ReadPosition,
    from_json,
    origin_of,
    to_json,
)

partitions = st.builds(PartitionId, st.integers(1, 3), st.integers(0, 12))
naturals = st.integers(0, 2**63 - 1)
positions = st.builds(ReadPosition, naturals, naturals)


@given(st.dictionaries(partitions, positions), st.randoms())
def test_offsets_survive_a_checkpoint_and_equal_ones_are_equal_as_text(offsets, order):
    names = list(offsets)
    order.shuffle(names)
    other = {name: offsets[name] for name in names}
    assert json.dumps(to_json(offsets)) == json.dumps(to_json(other))
    assert from_json(json.loads(json.dumps(to_json(offsets)))) == offsets


def test_offsets_say_whose_they_are():
    origin = OffsetsOrigin(QueueLife("default", "orders", "a1b2c3d4"), "0123")
    body = json.loads(json.dumps(to_json({PartitionId(1, 0): ReadPosition(5)}, origin)))
    assert origin_of("the checkpoint", body) == origin
    assert from_json(body) == {PartitionId(1, 0): ReadPosition(5)}
    assert origin_of("the checkpoint", to_json(from_json(body))) is None


@pytest.mark.parametrize("origin", ["orders", {"queue": "orders"}, {**dict.fromkeys("abcd")}])
def test_an_unusable_name_of_a_queue_is_refused(origin):
    with pytest.raises(BadRequestError, match="the checkpoint: queue: "):
        origin_of("the checkpoint", {"queue": origin})


@pytest.mark.parametrize(
    "body",
    [
        {"0": 5},
        {"1.0": 5},
        {"1.0": {"offset": 5}},
        {"1.0": {"offset": -1, "broker_epoch": 0}},
        {"1.0": {"offset": True, "broker_epoch": 0}},
        {"1.0": {"offset": "5", "broker_epoch": 0}},
        {"1.0": {"offset": 2**63, "broker_epoch": 0}},
    ],
)
def test_a_checkpoint_of_something_else_is_refused(body):
    with pytest.raises(BadRequestError, match="checkpoint"):
        from_json(body)
