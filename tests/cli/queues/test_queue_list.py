"""`partq queues` beside a runtime of several queues, by a directory, and without an answer."""

import asyncio
import json

import pytest
from click.testing import CliRunner

from partq import Producer
from partq.cli.commands import cli
from partq.embedded.runtime import EmbeddedRuntime
from partq.resources import group_document, parse_resources, queue_document, yaml_of


async def listed(*arguments, data_dir=None, status=0):
    env = {"PARTQ_DATA_DIR": str(data_dir), "COLUMNS": "80"}
    result = await asyncio.to_thread(CliRunner().invoke, cli, ("queues", *arguments), env=env)
    assert result.exit_code == status, result.output
    return result


def document(kind, namespace):
    kind["metadata"]["namespace"] = namespace
    return kind


@pytest.fixture
async def runtime(tmp_path):
    resources = parse_resources(
        yaml_of(
            queue_document("orders", partitions=2, brokers={"replicas": 1}),
            group_document("workers", "orders"),
            queue_document("quiet", partitions=1, brokers={"replicas": 1}),
            document(queue_document("orders", partitions=1, brokers={"replicas": 1}), "shop"),
            document(group_document("billing", "orders"), "shop"),
            document(group_document("audit", "orders"), "shop"),
        )
    )
    async with EmbeddedRuntime(resources, tmp_path / "data", lease_ttl_s=10.0) as runtime:
        for queue, count in ((runtime.queue("orders"), 5), (runtime.queue("orders", "shop"), 9)):
            token = queue.tokens.produce
            async with Producer(queue.url, queue="orders", token=token) as producer:
                for number in range(count):
                    await producer.send_and_wait(b"12345", key=str(number))
        yield runtime


async def test_every_queue_is_listed_with_what_it_holds(runtime, tmp_path):
    data_dir = runtime.data_dir
    rows = json.loads((await listed("--json", data_dir=data_dir)).stdout)
    where = [f"{row['namespace']}/{row['queue']}" for row in rows]
    assert where == ["shop/orders", "default/orders", "default/quiet"], "the most lag first"
    shop, orders, quiet = rows
    assert (shop["messages"], shop["lag"], shop["partitions"]) == (9, 18, 1)
    assert [(each["group"], each["lag"]) for each in shop["groups"]] == [
        ("audit", 9),
        ("billing", 9),
    ]
    assert (orders["messages"], orders["lag"], orders["availability"]) == (5, 5, "Available")
    assert orders["bytes"] > 25
    assert (quiet["messages"], quiet["groups"], quiet["lag"]) == (0, [], 0)

    lines = (await listed(data_dir=data_dir)).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]
    assert [row[:5] for row in cells if row] == [
        ["shop/orders", "Available", "1", "2", "9"],
        ["default/orders", "Available", "2", "1", "5"],
        ["default/quiet", "Available", "1", "0", "0"],
    ]

    (one,) = json.loads((await listed("--namespace", "shop", "--json", data_dir=data_dir)).stdout)
    assert one["namespace"] == "shop"
    named = json.loads((await listed("--queue", "orders", "--json", data_dir=data_dir)).stdout)
    assert len(named) == 2
    wrong = await listed("--queue", "other", data_dir=data_dir, status=2)
    assert "queue 'other': got no such queue" in wrong.stderr

    directory = tmp_path / "queues"
    directory.mkdir()
    for name, url in (("orders", runtime.queue("orders").url), ("gone", "http://127.0.0.1:1")):
        file = {"url": url, "token": runtime.queue("orders").tokens.admin}
        (directory / f"{name}.json").write_text(json.dumps(file))
    answer = await listed("--directory", str(directory), "--json", status=1)
    gone, there = json.loads(answer.stdout)
    assert (gone["queue"], gone["availability"], gone["messages"]) == ("gone", "NoAnswer", 0)
    assert (there["namespace"], there["queue"], there["lag"]) == ("default", "orders", 5)
    assert "1 queue does not answer, such as gone: no broker answers" in answer.stderr


async def test_where_nothing_runs_it_says_what_to_give(tmp_path):
    wrong = await listed(data_dir=tmp_path, status=2)
    assert "no queue of the namespace default runs in" in wrong.stderr
    empty = await listed("--directory", str(tmp_path), status=2)
    assert "got no file of a queue, expected QUEUE.json" in empty.stderr
