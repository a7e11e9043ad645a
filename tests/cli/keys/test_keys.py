"""`partq keys`, beside a real queue: which keys wait, and their release."""

import asyncio
import json

import pytest
from click.testing import CliRunner

from partq import Consumer, Producer
from partq.cli.commands import cli
from partq.cli.keys.keys import _show
from partq.core.hashing import slot_of
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from partq.wire.calls.parked_keys import ParkedKey, ParkedKeysResult

WAIT_S = 60.0
GROUPS = {"workers": {"nack": {"order": "Key", "delaySeconds": 3600}}}


@pytest.fixture(scope="module")
def broker():
    with LocalBroker(partitions=2, groups=GROUPS) as broker:
        yield broker


@pytest.fixture
def partq(broker):
    """Run a command; return its exit status, and what it prints and complains of."""

    async def partq(*arguments):
        env = {"PARTQ_DATA_DIR": str(broker.runtime.data_dir), "COLUMNS": "200"}
        result = await asyncio.to_thread(CliRunner().invoke, cli, arguments, env=env)
        return result.exit_code, result.stdout, result.stderr

    return partq


async def test_a_key_that_failed_is_listed_and_released(broker, partq):
    assert (await partq("keys", "list"))[:2] == (0, "0 slots wait\n")
    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        for key in ("bad", "good", "bad"):
            await producer.send(key.encode(), key=key)
    slot = slot_of("bad")
    consumer = Consumer(
        broker.url, queue="orders", group="workers", token=broker.tokens.consume, member="m",
        handle_signals=False,
    )  # fmt: skip
    async with consumer, asyncio.timeout(WAIT_S):
        messages = aiter(consumer)
        got = sorted([await anext(messages) for _ in range(2)], key=lambda each: each.key)
        bad, good = got if got[1].key == "good" else (got[0], await anext(messages))
        await consumer.nack(bad)
        await consumer.ack(good)

        async def listed():
            _, said, _ = await partq("keys", "list", "--json")
            rows = json.loads(said)["partitions"]
            found = [(name, each) for name, row in rows.items() for each in row["keys"]]
            return found or None

        ((name, row),) = await eventually(listed, "the key waits")
        assert (row["slot"], row["redeliveries"]) == (slot, 1)
        status, said, _ = await partq("keys", "list", "--partition", name)
        assert status == 0
        assert "1 slot waits" in said
        assert f"{slot}" in said
        told = f"1 key waits, from offset {row['offset']} on, and the others continue"
        assert f"partition {name}: {told}" in (await partq("status"))[1]
        status, said, _ = await partq("status", "--json")
        shown = json.loads(said)["groups"]["workers"]["partitions"][name]
        assert (shown["parked_keys"], shown["lowest_parked"]) == (1, row["offset"])
        assert told in (await partq("explain", name))[1]
        explained = json.loads((await partq("explain", name, "--json"))[1])
        assert (explained["parked_keys"], explained["lowest_parked"]) == (1, row["offset"])
        other = "1.1" if name == "1.0" else "1.0"
        assert (await partq("keys", "list", "--partition", other))[1] == "0 slots wait\n"

        assert await partq("keys", "release", "--key", "bad") == (
            0, f"released in partition {name}\n", "",
        )  # fmt: skip
        again = await anext(messages)
        assert (again.key, again.offset) == ("bad", bad.offset)
        assert (await partq("keys", "release", "--all"))[1] == (
            "nothing was released: no key waits\n"
        )
        await consumer.nack(again)
        await eventually(listed, "the key waits again")
        assert (await partq("keys", "release", "--all"))[1] == (
            f"1 slot released in partition {name}\n"
        )
        again = await anext(messages)
        nothing = "nothing was released: the key does not wait\n"
        assert (await partq("keys", "release", "--slot", str(slot)))[:2] == (0, nothing)
        elsewhere = f"{nothing[:-1]} in partition {other}\n"
        told = await partq("keys", "release", "--key", "bad", "--partition", other)
        assert told[:2] == (0, elsewhere)
        await consumer.ack(again)
        await consumer.ack(await anext(messages))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("release",), "--slot, --key, --all: got none of them, expected one of them"),
        (("release", "--slot", "1", "--key", "k"), "got 2 of them, expected one of them"),
        (("release", "--slot", "65536"), "65536 is not in the range 0<=x<=65535"),
        (("list", "--group", "nobody"), "has no consumer group 'nobody'"),
        (("list", "--partition", "9"), "1.9"),
    ],
)
async def test_what_it_refuses_it_names(partq, arguments, said):
    status, _, complained = await partq("keys", *arguments)
    assert status != 0
    assert said in complained


def test_keys_that_are_too_many_to_list_are_counted(capsys):
    keys = [ParkedKey(slot=7, offset=-1, due_ms=1000, redeliveries=0)]
    _show({"1.0": ParkedKeysResult(keys, 2), "1.1": ParkedKeysResult([])})
    assert "3 slots wait; 1 of them is listed\n" in capsys.readouterr().out
