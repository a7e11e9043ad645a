"""One key, whatever it is called."""

import pytest

from partq.errors import KeyConflictError
from partq.wire.partition_key import partition_key


@pytest.mark.req("AZR-21", "AZR-23", "AZR-24")
@pytest.mark.parametrize(("given", "key"), [
    pytest.param([], None, id="none: any partition will do"),
    pytest.param([("SessionId", "s")], "s", id="a session's id"),
    pytest.param([("PartitionKey", "p")], "p", id="no session"),
    pytest.param([("SessionId", "a"), ("PartitionKey", "a")], "a", id="both, and equal"),
    pytest.param([("SessionId", "a"), ("SessionId", "a"), ("key", "a")], "a", id="said thrice"),
    pytest.param([("JMSXGroupID", "")], "", id="the empty string is a key"),
])  # fmt: skip
def test_a_key_by_any_name(given, key):
    assert partition_key(given) == key


@pytest.mark.req("AZR-25")
@pytest.mark.parametrize("given", [
    pytest.param([("SessionId", "a"), ("PartitionKey", "b")], id="two names"),
    pytest.param([("SessionId", ""), ("PartitionKey", "b")], id="one of them is empty"),
    pytest.param([("SessionId", "a"), ("key", "a"), ("PartitionKey", "A")], id="the third differs"),
    pytest.param([("PartitionKey", "a"), ("PartitionKey", "b")], id="one name twice"),
])  # fmt: skip
def test_two_different_keys_are_refused_by_their_names(given):
    first, *_, last = given
    with pytest.raises(KeyConflictError) as refused:
        partition_key(given)
    for name, value in (first, last):
        assert f"{name} is {value}" in refused.value.message
