"""The example of a group whose members lock sessions."""

from partq.testing.local_broker import LocalBroker
from tests.examples.programs import output, start


async def test_each_customer_is_at_one_clerk_at_a_time_and_the_totals_are_right():
    """Also the customer of the clerk that goes home: another one goes on from the state."""
    async with LocalBroker(partitions=2, groups={"clerks": {"type": "Session"}}) as local:
        tokens = ("--publish", local.tokens.produce, "--consume", local.tokens.consume)
        lines = await output(await start("clerks.py", "--url", local.url, *tokens))
    assert "ann has gone home" in lines
    told = [line.partition(": ")[2].partition("; ") for line in lines[-6:]]
    orders = [[each.split(" at ")[0] for each in done.split(", ")] for done, _, _ in told]
    assert orders == [["10", "20", "30", "40"]] * 6
    assert [total for _, _, total in told] == ["in all 100"] * 6
    of_ann = [done for done, _, _ in told if " at ann" in done]
    assert len(of_ann) == 1
    assert of_ann[0].startswith("10 at ann, 20 at ")
