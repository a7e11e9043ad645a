"""`partq dead-letters`: a plan, a replay of some, and the letters of a key or a reason."""

import asyncio
import json
import shlex

import pytest
from click.testing import CliRunner

from partq.cli.commands import cli
from partq.cli.dead_letters import letter_search, replay_plan
from partq.core.dead_letters import DeadLetter, DeadLetterReason, Origin, headers_of, producer_of
from partq.core.model import Offset, PartitionId
from partq.errors import NotStoredError
from partq.wire import batch
from tests.broker.conftest import ADMIN, UID
from tests.broker.dead_letters import test_dead_letters
from tests.broker.dead_letters.test_dead_letters import TARGET, P, run
from tests.broker.delivery.test_undecodable import resources as resources
from tests.broker.operations import test_replay
from tests.broker.operations.test_replay import REFERENCE, bury_all, bury_broken
from tests.examples.pages import blocks

start_target, target = test_dead_letters.start_target, test_dead_letters.target
sent, kept = test_replay.sent, test_replay.kept
HIGH = 40_000
"""A slot of the second of two partitions."""


async def bury_one(running, number, slot, key, reason):
    """Have a dead letter stored, of the first or the second partition."""
    origin = Origin("orders", "workers", PartitionId(1, 0), Offset(number), 9)
    headers = headers_of(None, origin, DeadLetter(1, number, reason, 2))
    data = batch.encode(
        [batch.encode_message(batch.Message(key, b"dead %d" % number, headers))], [slot]
    )
    producer = producer_of(UID, P, f"workers-{slot}")
    await running.broker.dead_letters.target.send(TARGET, slot, data, producer, number)


async def asked(target, *arguments, status=0):
    result = await run(target, *arguments, "--json")
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


async def test_a_dry_run_tells_and_a_limit_replays_that_part(running, target, sent, kept):
    await bury_all(running, target, 0, REFERENCE, 2, 3, 4)
    plan = await asked(target, "replay", "--dry-run")
    assert (plan["would_replay"], plan["would_skip"], plan["is_complete"]) == (4, 1, True)
    assert plan["queues"] == {"orders": 4}
    assert plan["reasons"] == {"maxRedeliveries": 4}
    some = await asked(target, "replay", "--dry-run", "--limit", "2")
    assert (some["would_replay"], some["is_complete"]) == (2, False)
    (row,) = some["partitions"].values()
    assert (row["start"], row["stop"], row["count"], row["skipped"]) == (0, 3, 2, 1)
    text = (await run(target, "replay", "--dry-run", "--limit", "2")).stdout
    assert "2 dead letters would be replayed: 2 to orders (2 maxRedeliveries)" in text
    assert "there are more" in text
    assert await sent() == [], "it was only a plan"

    assert (await asked(target, "replay", "--yes", "--limit", "2", status=1))["replayed"] == 2
    assert await sent() == [b"dead 0", b"dead 2"]
    rest = await asked(target, "replay", "--dry-run")
    assert (rest["would_replay"], rest["would_skip"]) == (2, 1)
    assert (await asked(target, "replay", "--yes", "--limit", "5"))["replayed"] == 2
    assert await sent() == [b"dead 0", b"dead 2", b"dead 3", b"dead 4"]
    assert len(await kept()) == 1, "what is no message stays"
    none = await asked(target, "replay", "--yes", "--limit", "5")
    assert (none["replayed"], none["repeated"]) == (0, 0)


async def test_the_oldest_of_all_partitions_are_within_the_limit(
    running, target, sent, monkeypatch
):
    monkeypatch.setattr("partq.cli.dead_letters.replay.PAGE", 1)
    for number, slot in enumerate((0, HIGH, 0, HIGH, HIGH)):
        await bury_one(running, number, slot, "k", DeadLetterReason.EXPIRED)
    plan = await asked(target, "replay", "--dry-run", "--limit", "3")
    assert {name: row["count"] for name, row in plan["partitions"].items()} == {"1.0": 2, "1.1": 1}
    done = await asked(target, "replay", "--yes", "--limit", "3")
    assert (done["replayed"], sorted(done["partitions"])) == (3, ["1.0", "1.1"])
    left = (await asked(target, "list"))["messages"]
    assert [row["value"] for row in left] == ["dead 3", "dead 4"]
    one = await asked(target, "replay", "--yes", "--limit", "1", "--partition", "0")
    assert one["replayed"] == 0, "that partition has no more"


async def test_a_limited_replay_that_was_stopped_repeats_nothing(running, target, sent):
    await bury_all(running, target, *range(4))
    road = target.broker.dead_letters.target
    send, seen = road.send, []

    async def send_or_fail(*args):
        if len(seen) == 1:
            raise NotStoredError("the origin has gone")
        seen.append(args)
        return await send(*args)

    road.send = send_or_fail
    stopped = await run(target, "replay", "--yes", "--limit", "3")
    assert stopped.exit_code == 1
    road.send = send
    assert (await asked(target, "replay", "--yes", "--limit", "2"))["repeated"] == 0
    assert await sent() == [b"dead 0", b"dead 1", b"dead 2"]


async def test_a_plan_names_what_would_stop_it(running, target):
    data = batch.encode([batch.encode_message(batch.Message("k", b"a message", None))], [0])
    await bury_all(running, target, 0)
    await running.broker.dead_letters.target.send(TARGET, 0, data, producer_of(UID, P, "x"), 0)
    plan = await asked(target, "replay", "--dry-run")
    assert (plan["would_replay"], plan["partitions"]["1.0"]["stops_at"]) == (1, 1)
    text = (await run(target, "replay", "--dry-run")).stdout
    assert "partition 1.0 stops at message 1, which is not a dead letter" in text


async def test_a_plan_has_an_end(running, target, monkeypatch):
    monkeypatch.setattr(replay_plan, "MAX_PLANNED", 2)
    await bury_all(running, target, *range(3))
    plan = await asked(target, "replay", "--dry-run")
    assert (plan["would_replay"], plan["is_complete"]) == (2, False)


async def test_letters_of_a_key_or_a_reason_are_listed(running, target, monkeypatch):
    monkeypatch.setattr(letter_search, "PAGE", 2)
    reasons = (DeadLetterReason.EXPIRED, DeadLetterReason.MAX_REDELIVERIES)
    for number in range(9):
        await bury_one(running, number, 0, f"k{number % 3}", reasons[number % 2])
    await bury_broken(running, 9, REFERENCE)

    async def values(*filters):
        return [row["value"] for row in (await asked(target, "list", *filters))["messages"]]

    assert await values("--key", "k1") == ["dead 1", "dead 4", "dead 7"]
    assert await values("--key", "k1", "--reason", "expired") == ["dead 4"]
    assert await values("--reason", "expired", "--limit", "2") == ["dead 0", "dead 2"]
    assert len(await values("--reason", "undecodable")) == 1
    assert await values("--key", "other") == []
    monkeypatch.setattr(letter_search, "MAX_LETTERS_SEARCHED", 3)
    cut = await run(target, "list", "--key", "other")
    assert (cut.exit_code, "ended after 3 messages" in cut.stderr) == (0, True)


async def test_a_list_has_as_many_as_its_limit_says_though_one_answer_is_smaller(running, target):
    key = "k" * 90_000
    for number in range(14):
        await bury_one(running, number, 0, key, DeadLetterReason.EXPIRED)
    listed = (await asked(target, "list"))["messages"]
    assert [row["value"] for row in listed] == [f"dead {number}" for number in range(14)]
    assert len((await asked(target, "list", "--limit", "13"))["messages"]) == 13


async def test_letters_are_chosen_as_the_page_says(running, target, sent, kept):
    for number, key in enumerate(("other", "order-17", "order-17")):
        await bury_one(running, number, 0, key, DeadLetterReason.EXPIRED)
    await bury_broken(running, 3, REFERENCE)
    (lines,) = [block.text for block in blocks("sh") if "--reason no-stock" in block.text]
    texts = []
    for line in lines.splitlines():
        words = [*shlex.split(line)[1:], "--url", target.url, "--token", ADMIN]
        result = await asyncio.to_thread(CliRunner().invoke, cli, words)
        assert result.exit_code == 0, result.output
        texts.append(result.stdout.splitlines()[-1])
    assert texts == [
        "2 dead letters would be replayed: 2 to orders (2 expired)",
        "2 dead letters are replayed",
        "0 dead letters are replayed",
    ]
    assert await sent() == [b"dead 1", b"dead 2"]
    assert len(await kept()) == 4, "the first one stays, and holds the log"


@pytest.mark.parametrize("limit", ["0", "100001"])
async def test_a_limit_has_bounds(target, limit):
    result = await run(target, "replay", "--limit", limit, "--yes")
    assert (result.exit_code, "--limit" in result.stderr) == (2, True)
