"""Which slot a key has, and which node serves a slot by the word of several nodes."""

import pytest

from partq.core.model import PartitionId
from partq.store.cluster_slots import ClusterView, key_of, merge, slot_of
from partq.store.keys import Keys


def line(node_id, address, *, epoch, slots, flags="master"):
    return f"{node_id} {address} {flags} - 0 0 {epoch} connected {slots}"


def test_all_keys_of_a_partition_share_a_slot_and_so_do_those_of_a_group():
    keys, partition = Keys("partq", "ns", "orders", "0f3a9c1e"), PartitionId(1, 3)
    of_partition = (keys.log(partition), keys.meta(partition), keys.producers(partition))
    assert len({slot_of(key) for key in (*of_partition, keys.cursor(partition, "g"))}) == 1
    assert len({slot_of(key) for key in keys.of_group("g")}) == 1
    slots = {slot_of(keys.meta(partition._replace(index=index))) for index in range(100)}
    assert len(slots) > 90


@pytest.mark.parametrize(("command", "key"), [
    (("HGETALL", "k"), "k"),
    (("XRANGE", b"k", "-", "+"), "k"),
    (("XREAD", "COUNT", 10, "BLOCK", 5, "STREAMS", "k", "0-0"), "k"),
    (("TIME",), None),
    (("SCAN", b"0", "MATCH", "k*"), None),
])  # fmt: skip
def test_the_key_of_a_command(command, key):
    assert key_of(command) == key


def owners(*texts, by_name=False):
    return merge([ClusterView(text, "10.0.0.9") for text in texts], by_name=by_name)


def test_masters_own_their_ranges_and_the_rest_is_nobodys():
    found = owners("\n".join([
        line("a", "10.0.0.1:6379@16379", epoch=1, slots="0-9 12", flags="myself,master"),
        line("b", "10.0.0.2:6380@16380,b.local", epoch=2, slots="10-11 [13->-c]"),
        line("c", "10.0.0.3:6379@16379", epoch=2, slots="", flags="slave"),
        line("d", ":0@0", epoch=3, slots="20-30", flags="master,fail,noaddr"),
    ]))  # fmt: skip
    a, b = "10.0.0.1:6379", "10.0.0.2:6380"
    assert found[:14] == [*[a] * 10, b, b, a, None]
    assert set(found[14:]) == {None}


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_words_the_later_epoch_counts_and_the_order_does_not(order):
    """The old master, cut off, still takes itself for one."""
    past = line("a", "10.0.0.1:6379@1", epoch=1, slots="0-9")
    now = "\n".join([
        line("a", "10.0.0.1:6379@1", epoch=1, slots="", flags="master,fail"),
        line("r", "10.0.0.4:6379@1", epoch=7, slots="0-9"),
    ])  # fmt: skip
    assert set(owners(*[past, now][::order])[:10]) == {"10.0.0.4:6379"}


@pytest.mark.parametrize(("endpoint", "by_name", "address"), [
    pytest.param("10.0.0.1:6379@1,r.local,shard-id=x", True, "r.local:6379", id="by name"),
    pytest.param("10.0.0.1:6379@1,r.local", False, "10.0.0.1:6379", id="by address"),
    pytest.param("10.0.0.1:6379@1,", True, "10.0.0.1:6379", id="no name is announced"),
    pytest.param(":6379@1", False, "10.0.0.9:6379", id="it does not know its own address"),
    pytest.param("::1:6379@1", False, "[::1]:6379", id="IPv6"),
])  # fmt: skip
def test_where_a_node_is_reached(endpoint, by_name, address):
    assert owners(line("a", endpoint, epoch=1, slots="0-1"), by_name=by_name)[0] == address
