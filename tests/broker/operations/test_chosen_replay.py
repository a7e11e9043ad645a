"""Dead letters of a key or a reason are sent back, each once, whatever is cut off between."""

import asyncio
import json
from itertools import chain, product
from unittest.mock import AsyncMock

import pytest

from partq.broker.log.quota import NOTHING
from partq.broker.operations import replay
from partq.core.dead_letters import (
    MAX_REPLAYED_AHEAD,
    REASON_HEADER,
    DeadLetter,
    DeadLetterReason,
    Origin,
    headers_of,
    producer_of,
)
from partq.core.model import Offset
from partq.errors import (
    OutcomeUnknownError,
    StoreUnavailableError,
    UnknownQueueError,
)
from partq.store.records import dead_letters
from partq.wire import batch
from tests.broker.conftest import ADMIN, UID
from tests.broker.dead_letters import test_dead_letters
from tests.broker.dead_letters.test_dead_letters import TARGET, P, run
from tests.broker.delivery import test_undecodable
from tests.broker.delivery.test_undecodable import told
from tests.broker.operations import test_replay
from tests.broker.operations.test_replay import REFERENCE, bury_broken

start_target, target = test_dead_letters.start_target, test_dead_letters.target
resources = test_undecodable.resources
sent, kept = test_replay.sent, test_replay.kept
PATH = f"/v1/queues/{TARGET}/dead-letters/replay"


async def bury(running, *keys, first=0, headers=(), reason=DeadLetterReason.MAX_REDELIVERIES):
    """Have a dead letter of each key stored, with the value KEYNUMBER."""
    for number, key in enumerate(keys, first):
        origin = Origin("orders", "workers", P, Offset(number), 9)
        told = headers_of(None, origin, DeadLetter(1, number, reason, 2)) | dict(headers)
        message = batch.Message(key, f"{key}{number}".encode(), told)
        data = batch.encode([batch.encode_message(message)], [0])
        road = running.broker.dead_letters.target
        await road.send(TARGET, 0, data, producer_of(UID, P, "workers"), number)


async def replayed(target, **body):
    """Make calls until the end, or until one stops; return the sums, and the last answer."""
    sums, offsets = dict.fromkeys(("replayed", "repeated", "skipped"), 0), {}
    while True:
        asked = {"partitions": ["1.0"], "offsets": offsets, **body}
        status, answer = await target.call("POST", PATH, token=ADMIN, json=asked)
        assert status == 200, answer
        row = answer["partitions"]["1.0"]
        for name in sums:
            sums[name] += row.get(name, 0)
        if "next" not in row or "stopped" in row or row["next"] >= row["end"]:
            return tuple(sums.values()), row
        offsets = {"1.0": row["next"]}


async def texts(sent):
    return [value.decode() for value in await sent()]


async def listed(target, *arguments):
    result = await run(target, "list", "--json", *arguments)
    assert result.exit_code == 0, result.output
    return [row["value"] for row in json.loads(result.stdout)["messages"]], result.stderr


async def test_those_of_a_key_are_sent_and_the_others_stay(running, target, sent, kept):
    await bury(running, *"abcabc")
    plan = await run(target, "replay", "--key", "b", "--dry-run", "--json")
    assert json.loads(plan.stdout)["would_replay"] == 2
    done = await run(target, "replay", "--key", "b", "--yes")
    assert (done.exit_code, done.stdout) == (0, "2 dead letters are replayed\n"), done.output
    assert await texts(sent) == ["b1", "b4"]
    left, said = await listed(target)
    assert left == ["a0", "c2", "a3", "c5"]
    assert "2 more were replayed" in said
    assert (await listed(target, "--key", "b"))[0] == []
    again = json.loads((await run(target, "replay", "--key", "b", "--yes", "--json")).stdout)
    assert (again["replayed"], again["repeated"], again["skipped"]) == (0, 0, 0)
    plan = json.loads((await run(target, "replay", "--dry-run", "--json")).stdout)
    assert (plan["would_replay"], plan["is_complete"]) == (4, True)
    await run(target, "replay", "--key", "a", "--yes")
    assert len(await kept()) == 4, "all before the first that is left is freed"
    assert (await run(target, "replay", "--yes")).stdout == "2 dead letters are replayed\n"
    assert await texts(sent) == ["b1", "b4", "a0", "a3", "c2", "c5"]
    assert await kept() == []


async def test_reasons_are_the_brokers_or_the_applications(running, target, sent):
    note = {REASON_HEADER: "no-stock"}
    await bury(running, "a", "b", headers=note, reason=DeadLetterReason.APPLICATION)
    await bury(running, "a", "b", first=2, reason=DeadLetterReason.EXPIRED)
    await bury(running, "a", first=4, headers=note)
    await run(target, "replay", "--reason", "expired", "--key", "b", "--yes")
    assert await texts(sent) == ["b3"]
    await run(target, "replay", "--reason", "no-stock", "--yes")
    assert await texts(sent) == ["b3", "a0", "b1", "a4"]
    assert (await replayed(target, reason="other"))[0] == (0, 0, 0)


async def test_a_limit_counts_what_is_chosen(running, target, sent, monkeypatch):
    monkeypatch.setattr("partq.cli.dead_letters.replay.PAGE", 2)
    await bury(running, *"abababab")
    some = await run(target, "replay", "--key", "b", "--limit", "3", "--yes", "--json")
    assert json.loads(some.stdout)["replayed"] == 3, some.output
    assert await texts(sent) == ["b1", "b3", "b5"]
    rest = await run(target, "replay", "--limit", "3", "--yes", "--json")
    assert json.loads(rest.stdout)["replayed"] == 3, rest.output
    assert (await texts(sent))[3:] == ["a0", "a2", "a4"]


class DyingBroker:
    """Its n-th I/O step of a kind is not made, or not answered, and no later one is made."""

    def __init__(self, broker):
        self.broker, self.steps = broker, {}
        self.parts = ((broker.replays, "advance"), (broker.dead_letters.target, "send"))
        self.parts += ((broker.log, "trim"),)

    def arm(self, name, at, *, is_done):
        """`is_done`: the step is made."""
        self.is_dead, left = False, [at]

        def wrap(part, each, step):
            async def make(*args, **kwargs):
                left[0] -= each == name
                if self.is_dead or (each == name and not left[0]):
                    if is_done and not self.is_dead:
                        await step(*args, **kwargs)
                    self.is_dead = True
                    raise StoreUnavailableError("the broker is dead")
                return await step(*args, **kwargs)

            self.steps[part, each] = step
            setattr(part, each, make)

        for part, each in self.parts:
            wrap(part, each, getattr(part, each))

    def restart(self):
        for (part, each), step in self.steps.items():
            setattr(part, each, step)
        self.broker.owned[P].replay = None  # what was in memory dies with the broker


CRASHES = [("advance", at) for at in (1, 2, 3, 4)] + [("send", 1), ("send", 2), ("trim", 1)]


@pytest.mark.parametrize(
    "calls",
    [({"key": "b"}, {}), ({}, {"key": "b"}), ({"key": "b"}, {"key": "a"})],
    ids=["chosen, all", "all, chosen", "chosen, others"],
)
async def test_a_crash_at_any_step_loses_and_repeats_nothing(running, target, sent, kept, calls):
    dying = DyingBroker(target.broker)
    buried = []
    for round_number, (step, is_done) in enumerate(product(CRASHES, (False, True)), 1):
        first = len(buried) + round_number - 1
        await bury(running, *"abba", first=first)
        await bury_broken(running, first + 4, REFERENCE)
        await bury(running, *"aba", first=first + 5)
        buried += [f"{key}{first + at}" for at, key in enumerate("abba-aba") if key != "-"]
        for call in calls:  # each dies, and the next one goes on
            dying.arm(*step, is_done=is_done)
            await replayed(target, **call)
            dying.restart()
        for call in (*calls, {}):
            _, row = await replayed(target, **call)
            assert "stopped" not in row, row
        values = await texts(sent)
        assert sorted(values) == sorted(buried), (step, is_done)
        for key in "ab":
            of_key = [int(value[1:]) for value in values if value.startswith(key)]
            assert of_key == sorted(of_key), (step, is_done)
        stay = [told(message)["offset"] for message in await kept() if not message.value]
        assert len(stay) == len(set(stay)) == round_number, "those stay that are no messages"


async def test_two_replays_at_once_send_each_once(running, target, sent, monkeypatch):
    monkeypatch.setattr(replay, "BUDGET_S", 0.0)  # a step each, in turn
    await bury(running, *"abababab")
    calls = ({"key": "b"}, {}, {"key": "b"}, {"key": "a"})
    found = await asyncio.gather(*(replayed(target, **call) for call in calls))
    assert not any("stopped" in row for _, row in found)
    assert [sum(each) for each in zip(*(sums for sums, _ in found), strict=True)] == [8, 0, 0]
    assert sorted(await texts(sent)) == sorted(f"{'ab'[n % 2]}{n}" for n in range(8))


async def test_a_late_answer_and_a_late_message_are_recognized(running, target, sent):
    await bury(running, *"abab")
    road = target.broker.dead_letters.target
    send, late = road.send, []

    async def send_in_vain(*args):
        late.append(args)
        raise OutcomeUnknownError("no answer")

    road.send = send_in_vain
    _, row = await replayed(target, key="b")
    assert row["stopped"]["code"] == "outcome_unknown"
    _, row = await replayed(target, key="a")
    assert "message 1 was on its way when an earlier replay ended" in row["stopped"]["message"]
    assert {number for *_, number in late} == {late[0][-1]}, "under the same number"
    road.send = send
    sums, row = await replayed(target, key="a")
    assert (sums, "stopped" in row) == ((3, 0, 0), False)
    assert await texts(sent) == ["b1", "a0", "a2"]
    for args in late:
        assert await send(*args) is False
    await replayed(target)
    assert await texts(sent) == ["b1", "a0", "a2", "b3"]


async def test_a_queue_that_was_deleted_meanwhile_holds_up_no_other_message(
    running, target, sent, monkeypatch
):
    await bury(running, *"ab")
    road = target.broker.dead_letters.target
    for error, key, code in (
        (OutcomeUnknownError("no answer"), "b", "outcome_unknown"),
        (UnknownQueueError("queue orders: not found"), "b", "unknown_queue"),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(road, "send", AsyncMock(side_effect=error))
            _, row = await replayed(target, key=key)
            assert row["stopped"]["code"] == code
    assert (await replayed(target, key="a"))[0] == (1, 0, 0)
    assert await texts(sent) == ["a0"]


async def test_the_next_broker_goes_on_where_the_last_one_was(
    running, target, start_target, sent, kept
):
    await bury(running, *"abab")
    road = target.broker.dead_letters.target
    send = road.send

    async def send_late(*args):
        await send(*args)
        raise OutcomeUnknownError("no answer")

    road.send = send_late
    await replayed(target, key="b")
    await target.stop()
    following = await start_target()
    assert (await replayed(following, key="b"))[0] == (1, 1, 0)
    assert (await replayed(following))[0] == (2, 0, 0)
    assert (await texts(sent), await kept()) == (["b1", "b3", "a0", "a2"], [])


async def test_a_full_queue_holds_up_its_messages_alone(running, target, sent, monkeypatch):
    await bury(running, *"abb")
    with monkeypatch.context() as patched:
        patched.setattr(running.broker.quota, "take", lambda _: NOTHING)
        _, row = await replayed(target, key="b")
    assert (row["stopped"]["code"], row["next"]) == ("quota_exceeded", 1)
    assert (await replayed(target, key="a"))[0] == (1, 0, 0), "1 is certainly not on its way"
    assert (await replayed(target))[0] == (2, 0, 0)
    assert await texts(sent) == ["a0", "b1", "b2"]


async def test_what_cannot_be_remembered_is_refused(running, target, sent, monkeypatch):
    monkeypatch.setattr(dead_letters, "MAX_REPLAYED_AHEAD", 2)
    await bury(running, *"abbb")
    result = await run(target, "replay", "--key", "b", "--yes")
    assert result.exit_code == 1
    assert f"message 3 is not replayed, as {MAX_REPLAYED_AHEAD} behind message 0" in result.stderr
    assert await texts(sent) == ["b1", "b2"]
    await replayed(target, key="a")
    assert (await replayed(target, key="b"))[0] == (1, 0, 0)
    assert await texts(sent) == ["b1", "b2", "a0", "b3"]


async def test_letters_that_are_dropped_meanwhile_hold_up_nothing(running, target, sent, kept):
    await bury(running, *"abcb")
    road, send = target.broker.dead_letters.target, target.broker.dead_letters.target.send

    async def fail(*_):
        raise OutcomeUnknownError("no answer")

    road.send = fail
    await replayed(target, key="b")
    road.send = send
    dropped = await run(target, "drop", "--partition", "0", "--before", "2", "--yes")
    assert dropped.exit_code == 0, dropped.output
    assert (await replayed(target, key="b"))[0] == (1, 0, 0)
    assert (await run(target, "drop", "--yes")).exit_code == 0
    await bury(running, *"ab", first=4)
    assert (await replayed(target))[0] == (2, 0, 0)
    assert (await texts(sent), await kept()) == (["b3", "a4", "b5"], [])


async def test_undecodable_letters_are_chosen_by_their_reason_and_stay(running, target, sent, kept):
    await bury_broken(running, 0, REFERENCE)
    await bury(running, *"bab", first=1)
    sums, row = await replayed(target, reason="undecodable")
    assert (sums, row["skipped_because"]["code"]) == ((0, 0, 1), "undecodable")
    assert (await replayed(target, key="b"))[0] == (2, 0, 0)
    assert len(await kept()) == 4, "the first one holds the log"
    assert (await replayed(target))[0] == (1, 0, 1)
    assert await texts(sent) == ["b1", "b3", "a2"]
    assert [message.value for message in await kept()] == [b""]
    assert (await replayed(target))[0] == (0, 0, 1)


async def test_what_a_pin_keeps_is_shown_as_replayed_and_not_sent_again(
    running, target, sent, kept
):
    await bury(running, *"abab")
    pin = f"/v1/queues/{TARGET}/pins/reader"
    status, _ = await target.call("PUT", pin, token=ADMIN, json={"offsets": {"1.0": 0}})
    assert status == 200
    await replayed(target, key="b")
    for count in (2, 0):
        assert (await replayed(target))[0] == (count, 0, 0)
    path = f"/v1/queues/{TARGET}/browse"
    _, page = await target.call("POST", path, token=ADMIN, json={})
    assert [row["is_replayed"] for row in page["messages"]] == [True] * 4
    assert await texts(sent) == ["b1", "b3", "a0", "a2"]
    await target.call("DELETE", pin, token=ADMIN)
    await replayed(target)
    assert await kept() == []


async def test_what_is_no_dead_letter_is_passed_by(running, target, sent):
    data = batch.encode([batch.encode_message(batch.Message("b", b"mine", None))], [0])
    road = running.broker.dead_letters.target
    await road.send(TARGET, 0, data, producer_of(UID, P, "x"), 0)
    await bury(running, "b", first=1)
    assert (await replayed(target, key="b"))[0] == (1, 0, 0)
    assert await texts(sent) == ["b1"]


@pytest.mark.parametrize("field", ["key", "reason"])
async def test_what_is_chosen_has_bounds(target, field):
    body = {"partitions": ["1.0"], field: "x" * 65_537}
    status, answer = await target.call("POST", PATH, token=ADMIN, json=body)
    assert (status, answer["error"]["code"]) == (400, "bad_json"), answer
    assert f"{field}: got 65537 characters, expected at most 65536" in answer["error"]["message"]


async def test_a_search_goes_on_where_the_call_before_it_has_ended(
    running, target, sent, monkeypatch
):
    monkeypatch.setattr(replay, "BUDGET_S", 0.0)
    await bury(running, *chain("aaa", "b"))
    asked = []
    call = target.call

    async def noted(*args, **kwargs):
        asked.append(kwargs["json"]["offsets"])
        return await call(*args, **kwargs)

    monkeypatch.setattr(target, "call", noted)
    assert (await replayed(target, key="b"))[0] == (1, 0, 0)
    assert asked == [{}, {"1.0": 1}, {"1.0": 2}, {"1.0": 3}]
