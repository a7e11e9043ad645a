"""Audit records as Arrow columns are those that the wire's decoder returns, or its error."""

import pyarrow as pa
import pytest

from partq.arrow.audit_columns import audit_batch
from partq.core.model import PartitionId
from partq.errors import UndecodableError
from partq.pipeline.archive_columns import arrow_schema
from partq.wire.audit import GENESIS, AuditGroup, chain_of, decode_columns, encode_record

PARTITION = PartitionId(1, 3)
SCHEMA = arrow_schema("audit")


def groups_of(*bodies, broker="broker-0"):
    """Return a chain of groups of these records."""
    chain, found = GENESIS, []
    for sequence, body in enumerate(bodies):
        data = f"1 {sequence} {1_800_000_000_000 + sequence} 7 {broker}\n".encode() + body
        previous, chain = chain, chain_of(chain, data)
        found.append(AuditGroup(previous, chain, data))
    return found


def record(**changed):
    return encode_record("deliver", **({"group": "g", "first": 3, "stop": 5} | changed))


PUBLISH = encode_record("publish", first=3, stop=5, slots=b"\n\t\xff\x00", producer="p", number=0)


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param([], id="no groups"),
        pytest.param(groups_of(b""), id="a group without records"),
        pytest.param(groups_of(record(), PUBLISH + record(member="m") + PUBLISH), id="some"),
        pytest.param(
            groups_of(record(member='a\t"b",\r\n%25', cause="ä€𝄞", flow=2**63 - 1, group="\\")),
            id="names of all characters",
        ),
        pytest.param(groups_of(record(), broker="b%09%25"), id="a broker's name"),
        pytest.param(groups_of(record(content_crc=0) + record()), id="a later field"),
        pytest.param(groups_of(record().replace(b"\t3\t", b"\t1_0\t")), id="a number to Python"),
    ],
)
def test_columns_are_those_of_the_decoder(groups):
    expected = pa.RecordBatch.from_pydict(decode_columns(PARTITION, groups), schema=SCHEMA)
    assert audit_batch(PARTITION, groups, SCHEMA).equals(expected)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(record().replace(b"\t3\t", b"\tthree\t"), id="a number that is none"),
        pytest.param(record().replace(b"\tg\t", b"\t\xff\t"), id="a name that is not UTF-8"),
        pytest.param(record()[:-9] + b"\n", id="too few fields"),
        pytest.param(PUBLISH[:-1], id="slots that are cut off"),
    ],
)
def test_what_is_broken_is_the_error_of_the_decoder(body):
    groups = groups_of(record(), body)
    with pytest.raises(UndecodableError) as expected:
        decode_columns(PARTITION, groups)
    with pytest.raises(UndecodableError) as raised:
        audit_batch(PARTITION, groups, SCHEMA)
    assert raised.value.message == expected.value.message
