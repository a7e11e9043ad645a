"""The example of a group whose members share the keys of one partition."""

from partq.testing.local_broker import LocalBroker
from tests.examples.programs import output, start


async def test_several_workers_share_a_partition_and_each_customer_is_in_order():
    """Also the customers of the worker that leaves: the others continue with the next order."""
    groups = {"workers": {"type": "KeyShared"}}
    async with LocalBroker(partitions=1, groups=groups) as local:
        tokens = ("--publish", local.tokens.produce, "--consume", local.tokens.consume)
        lines = await output(await start("shared_keys.py", "--url", local.url, *tokens))
    assert "ann leaves" in lines
    told = [line.partition(": ")[2].split(", ") for line in lines[-12:]]
    orders = [[each.split(" at ")[0] for each in customer] for customer in told]
    assert orders == [["1", "2", "3", "4"]] * 12
    workers = [each.split(" at ")[1] for customer in told for each in customer]
    assert set(workers) == {"ann", "bob", "cleo"}
    assert workers.count("ann") == 5, "what it had not begun is not done twice"
