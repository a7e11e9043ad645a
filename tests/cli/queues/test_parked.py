"""What the commands say of messages that do not decode and wait, beside real processes."""

import asyncio
import json

from click.testing import CliRunner

from partq import Consumer
from partq.cli.commands import cli
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.undecodable import publish_undecodable

WAIT_S = 60.0


async def test_what_does_not_decode_and_waits_is_named():
    """Its dead-letter queue is not there; what is published behind it arrives."""
    async with LocalBroker(partitions=1, lease_ttl_s=10.0) as broker:
        env = {"PARTQ_DATA_DIR": str(broker.runtime.data_dir), "COLUMNS": "300"}

        async def partq(*arguments):
            result = await asyncio.to_thread(CliRunner().invoke, cli, arguments, env=env)
            assert result.exit_code == 0, result.output
            return result.stdout

        where = broker.url, "orders", broker.tokens.produce
        await publish_undecodable(*where, count=3, partition_count=1)
        await partq("publish", "--key", "k", "behind")
        consumer = Consumer(
            broker.url, queue="orders", group="workers", token=broker.tokens.consume, member="m",
            handle_signals=False, on_error=lambda error: None,
        )  # fmt: skip
        async with consumer, asyncio.timeout(WAIT_S):
            message = await anext(aiter(consumer))
            assert message.value == b"behind"
            await consumer.ack(message)

            async def with_parked():
                explained = json.loads(await partq("explain", "0", "--json"))
                return explained if explained["parked"] else None

            explained = await eventually(with_parked, "it is no short trouble any more")
            assert explained["waits_for"]["what"] == "nothing"
            (row,) = json.loads(await partq("groups", "--json"))
            assert (row["parked"], row["blocked"]) == ({"1.0": explained["parked"]}, {})
            told = "3 dead letters wait for the dead-letter queue, and deliveries"
            for command in (("explain", "0"), ("status",), ("groups",)):
                said = await partq(*command)
                assert f"{told} continue: {explained['parked']}" in said
        gone = await partq("groups", "remove", "workers", "--dry-run")
        assert "0 messages not acknowledged; 3 dead letters wait to be stored, to be" in gone
