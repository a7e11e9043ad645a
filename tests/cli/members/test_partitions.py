"""`partq partitions`: who holds which, and marks that keep members from registering."""

import asyncio
import json

import pytest
from click.testing import CliRunner

from partq import ClientAssignedConsumer, NotSubscribableError, PartitionId
from partq.cli.commands import cli
from partq.testing.local_broker import LocalBroker
from tests.even_shares import even_shares


@pytest.mark.req("TUB-30", "TUB-33")
async def test_holders_are_shown_and_partitions_are_marked():
    groups = {"workers": {"assignment": "Client"}}
    async with LocalBroker(groups=groups, broker_count=2) as broker:
        await even_shares(broker.queue)
        env = {"PARTQ_DATA_DIR": str(broker.runtime.data_dir), "COLUMNS": "200"}

        async def partq(*arguments, status=0):
            run = CliRunner().invoke
            result = await asyncio.to_thread(run, cli, ["partitions", *arguments], env=env)
            assert result.exit_code == status, result.output
            return result.stderr if status else result.stdout

        options = {"queue": "orders", "group": "workers", "token": broker.tokens.consume}
        async with ClientAssignedConsumer(broker.url, member="one", **options) as consumer:
            await consumer.start(2, 1)
            await consumer.register(PartitionId(1, 1))
            shown = json.loads(await partq("--json"))
            assert shown["assignment"] == "Client"
            held = {name: each["member"] for name, each in shown["partitions"].items()}
            assert held == {"1.0": "", "1.1": "one", "1.2": "", "1.3": ""}
            assert shown["partitions"]["1.1"]["node_id"] == 1
            told = await partq("--group", "workers")
            assert "group workers: assignment Client " in told
            assert "not subscribable" in told

            told = await partq("mark", "1.2", "--reason", "disk")
            assert told == "partition 1.2 is not subscribable: disk\n"
            assert "disk" in await partq()
            with pytest.raises(NotSubscribableError, match="disk"):
                await consumer.register(PartitionId(1, 2))
            assert await partq("unmark", "1.2") == "partition 1.2 is subscribable\n"
            await consumer.register(PartitionId(1, 2))

            name = shown["partitions"]["1.3"]["broker"]
            await partq("mark", "--broker", name)
            with pytest.raises(NotSubscribableError):
                await consumer.register(PartitionId(1, 3))
            await partq("unmark", "--broker", name)
            await consumer.register(PartitionId(1, 3))

        assert "got neither, expected one of them" in await partq("mark", status=2)
        assert "expected GENERATION.INDEX" in await partq("mark", "x", status=2)
        assert "expected 200 characters" in await partq(
            "mark", "1.1", "--reason", "x" * 201, status=2
        )
        assert "--json: got it before `mark`" in await partq("--json", "mark", "1.1", status=2)
