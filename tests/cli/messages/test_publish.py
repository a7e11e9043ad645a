"""`partq publish`: what it says when a message is not stored."""

import asyncio
import json
import subprocess

import pytest

from partq import NotStoredError, PartitionId, Producer
from partq.cli.messages.publish import PublishTally, _await_answer
from partq.client.produce.results import ScheduledPosition
from partq.core.numbering.scheduled_ids import DueTime
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from tests.cli.processes import PARTQ

WAIT_S = 280.0
VALUE = b"x" * 100_000
QUOTA_BYTES = 1_048_576
TRIES = 10
"""Of a repeat that is under way when the time ends nobody knows whether it is stored."""


async def test_the_reason_of_a_failure_is_printed_once():
    """A quota that is used up: one line on standard error, in which nothing stands twice."""
    spec = {"limits": {"maxSpoolBytes": QUOTA_BYTES}}
    async with asyncio.timeout(WAIT_S), LocalBroker(partitions=1, spec=spec) as broker:
        producer = Producer(
            broker.url,
            queue="orders",
            token=broker.tokens.produce,
            delivery_timeout_s=1,
            compression="none",
        )
        async with producer:
            stored = 0
            while (stored + 1) * len(VALUE) <= QUOTA_BYTES:
                sent = [await producer.send(VALUE) for _ in range(2 * QUOTA_BYTES // len(VALUE))]
                answers = await asyncio.gather(*sent, return_exceptions=True)
                stored += sum(not isinstance(answer, NotStoredError) for answer in answers)
        for _ in range(TRIES):
            done = await asyncio.to_thread(
                subprocess.run,
                [
                    *(*PARTQ, "publish", "--timeout", "5", "--compression", "none"),
                    *("--url", broker.url, "--queue", "orders", "--token", broker.tokens.produce),
                    *(VALUE, VALUE),
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            if "may or may not be stored" not in done.stderr:
                break
    assert (done.returncode, done.stdout) == (1, "published 0, 2 failed\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "partq: partition 1.0: not stored within the delivery timeout: the quota of the queue "
        "(limits.maxSpoolBytes) is used up; the oldest messages of this broker are held by group "
    )
    assert line.endswith("or raise it, and publish again later")


async def test_with_atomic_all_messages_are_stored_or_none(tmp_path):
    """A line without the one key means none; what is stored lies together."""
    file = tmp_path / "lines.ndjson"
    good = '{"key": "k", "value": "a"}\n{"key": "k", "value": "b"}\n'

    async def publish(broker, *arguments):
        place = ("--url", broker.url, "--queue", "orders", "--token", broker.tokens.produce)
        return await asyncio.to_thread(
            subprocess.run,
            [*PARTQ, "publish", "--atomic", "--json", *place, *arguments],
            capture_output=True,
            text=True,
            check=False,
        )

    async with asyncio.timeout(WAIT_S), LocalBroker(partitions=1) as broker:
        file.write_text(good + '{"value": "c"}\n')
        done = await publish(broker, "--input", str(file))
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{file}, line 3: transaction: message 2 has no key" in done.stderr
        done = await publish(broker, "--key", "k", "a", "b", "c")
        assert (done.returncode, done.stderr) == (0, "")
        expected = [{"partition": "1.0", "offset": offset} for offset in range(3)]
        assert [json.loads(line) for line in done.stdout.splitlines()] == expected


async def test_a_message_whose_id_is_known_is_counted_as_such(tmp_path):
    file = tmp_path / "lines.ndjson"
    lines = [{"value": "a", "message_id": "m"}, {"value": "b", "message_id": "n"}, {"value": "c"}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))

    async def run(broker, command, *arguments, token=""):
        token = token or broker.tokens.produce
        place = ("--url", broker.url, "--queue", "orders", "--token", token)
        return await asyncio.to_thread(
            subprocess.run,
            [*PARTQ, command, *place, *arguments],
            capture_output=True,
            text=True,
            check=False,
        )

    spec = {"duplicateDetection": {}}
    async with asyncio.timeout(WAIT_S), LocalBroker(partitions=1, spec=spec) as broker:
        done = await run(broker, "publish", "--id", "m", "x")
        assert (done.returncode, done.stdout) == (0, "published 1\n")
        done = await run(broker, "publish", "--id", "m", "x")
        assert (done.returncode, done.stdout) == (0, "published 0, 1 known\n")
        done = await run(broker, "publish", "--json", "--input", str(file))
        assert [json.loads(line) for line in done.stdout.splitlines()] == [
            {"partition": "1.0", "offset": None, "is_duplicate": True},
            {"partition": "1.0", "offset": 1},
            {"partition": "1.0", "offset": 2},
        ]
        done = await run(broker, "publish", "--id", "m", "x", "y")
        assert (done.returncode, "--id is of one message" in done.stderr) == (2, True)

        async def is_told():
            status = await run(broker, "status", token=broker.tokens.admin)
            return "2 message ids known" in status.stdout.replace("\n", " ")

        await eventually(is_told, "the status tells of the ids")


@pytest.mark.parametrize(
    ("due", "until"),
    [
        (DueTime(1_796_126_400_000), "until 2026-12-01T12:00:00.000Z"),
        (DueTime(after_ms=900_000), "for 900 s from now on"),
    ],
)
async def test_what_waits_is_told_with_its_id(capsys, due, until):
    outcome = PublishTally(due=due)
    for number in range(13):
        answer = asyncio.get_running_loop().create_future()
        answer.set_result(ScheduledPosition.of(PartitionId(1, 3), number, is_known=False))
        await _await_answer(answer, outcome, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        f"1.3/0000000000000000 waits {until}: `partq scheduled cancel` takes this id"
    )
    assert len(lines) == 11
    assert lines[-1] == "and more: `partq scheduled list` shows all"
