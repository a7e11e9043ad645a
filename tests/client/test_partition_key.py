"""Keys of partitions: what is printed can be read, and nothing else can."""

import pytest

from partq import PartitionId, PartitionKey


@pytest.mark.req("TUB-14", "TUB-15")
@pytest.mark.parametrize("key", [PartitionKey("orders", PartitionId(1, 3)),
                                 PartitionKey("a-b2", PartitionId(12, 4095))])  # fmt: skip
def test_what_is_printed_can_be_parsed(key):
    assert PartitionKey.parse(str(key)) == key
    assert str(PartitionKey.parse(f"{key}")) == f"{key.queue}:{key.partition}"


@pytest.mark.req("TUB-15")
@pytest.mark.parametrize(
    "text",
    [None, 7, b"orders:1.3", "", "orders", "orders:", "orders:1", ":1.3", "orders:1.3.4",
     "orders:1.3 ", " orders:1.3",
     "or:ders:1.3", "Orders:1.3", "orders:01.3", "orders:1.-3", "orders:1,3", "orders:1.3\n"],
)  # fmt: skip
def test_a_malformed_one_is_refused(text):
    with pytest.raises(ValueError, match="expected QUEUE:GENERATION"):
        PartitionKey.parse(text)


def test_keys_sort_by_queue_and_number():
    texts = ["b:1.0", "a:1.10", "a:1.9", "a:2.0"]
    keys = sorted(PartitionKey.parse(text) for text in texts)
    assert [str(key) for key in keys] == ["a:1.9", "a:1.10", "a:2.0", "b:1.0"]
