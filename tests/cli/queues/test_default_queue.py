"""Without `--queue`: a dead-letter queue that was created does not count, beside real processes."""

import asyncio
import json

from click.testing import CliRunner

from partq.cli.commands import cli
from partq.embedded.runtime import EmbeddedRuntime
from partq.resources import group_document, queue_document, resources_of


async def test_a_dead_letter_queue_that_was_created_is_used_only_by_its_name(tmp_path):
    resources = resources_of(
        queue_document("shop", partitions=1, brokers={"replicas": 1}),
        group_document("packers", "shop", deadLetter={"create": True}),
    )
    place = {"PARTQ_DATA_DIR": str(tmp_path / "data")}

    async def told(*arguments):
        invoke = CliRunner().invoke
        result = await asyncio.to_thread(invoke, cli, [*arguments, "--json"], env=place)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    async with EmbeddedRuntime(resources, tmp_path / "data"):
        assert (await told("dev", "env"))["PARTQ_QUEUE"] == "shop"
        assert (await told("status"))["queue"] == "shop"
        letters = ("--queue", "shop-packers-dlq")
        assert (await told("status", *letters))["queue"] == "shop-packers-dlq"
        assert (await told("dev", "env", *letters))["PARTQ_QUEUE"] == "shop-packers-dlq"
        every = await told("queues")
        assert {row["queue"] for row in every} == {"shop", "shop-packers-dlq"}
