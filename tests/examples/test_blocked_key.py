"""The example of a message that holds up its own key: the other keys do not wait for it."""

from partq.testing.local_broker import LocalBroker
from tests.examples.programs import output, start


async def test_a_message_that_fails_holds_up_its_own_key_only():
    """All customers share a partition; the one whose order fails is the last, and in order."""
    groups = {"workers": {"nack": {"order": "Key"}}}
    async with LocalBroker(partitions=1, groups=groups) as local:
        tokens = ("--publish", local.tokens.produce, "--consume", local.tokens.consume)
        lines = await output(await start("blocked_key.py", "--url", local.url, *tokens))
    assert lines[-4:] == [f"{each}: orders 1, 2, 3, 4, 5" for each in ("ada", "ben", "cyd", "dee")]
    done = [line for line in lines[:-4] if ": order " in line and "address" not in line]
    assert [line.split(",")[0] for line in done[-4:]] == [f"ada: order {n}" for n in (2, 3, 4, 5)]
    assert ", at attempt " in done[-4], "it was redelivered"
