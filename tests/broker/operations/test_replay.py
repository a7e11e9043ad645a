"""Dead letters that are no messages are never sent back as messages, and never lost."""

import asyncio
import json

import pytest

from partq.broker.operations import replay
from partq.core.dead_letters import DeadLetter, DeadLetterReason, Origin, headers_of, producer_of
from partq.core.hashing import slot_of
from partq.core.model import SLOT_COUNT, Offset
from partq.errors import StoreUnavailableError
from partq.store.keys import Keys
from partq.store.records.log import Log
from partq.testing import eventually
from partq.wire import batch
from tests.broker.conftest import ADMIN, UID
from tests.broker.dead_letters import test_dead_letters
from tests.broker.dead_letters.test_dead_letters import (
    TARGET,
    TARGET_UID,
    P,
    bury,
    consumed,
    run,
)
from tests.broker.delivery import test_undecodable
from tests.broker.delivery.test_undecodable import GARBAGE, consume, letters, publish, told

start_target, target = test_dead_letters.start_target, test_dead_letters.target
resources, stored = test_undecodable.resources, test_undecodable.stored
KEY = next(key for key in map(str, range(100)) if slot_of(key) < SLOT_COUNT // 2)
"""Of the first of two partitions."""
BROKEN = b"\xc1 the bytes of a batch"
BATCH, REFERENCE, LEFT_OUT = (
    (BROKEN, {"undecodable": "0"}),
    (b"", {"undecodable": "1", "batch": "1.9.0"}),
    (b"", {"undecodable": "2", "omitted": "70000"}),
)


@pytest.fixture
def sent(running):
    """Read what the origin's partition holds."""

    async def sent():
        entries = await running.broker.log.read(P, Offset(0), max_bytes=2**20, max_entries=1000)
        return [message.value for entry in entries for message in batch.decode(entry.data)]

    return sent


@pytest.fixture
def kept(store, key_prefix):
    """Read what partition 1.0 of the dead-letter queue still holds, as values."""
    log = Log(store, Keys(key_prefix, "default", TARGET, TARGET_UID))

    async def kept():
        entries = await log.read(P, Offset(0), max_bytes=2**20, max_entries=1000)
        return [message for entry in entries for message in batch.decode(entry.data)]

    return kept


async def bury_broken(running, number, letter):
    """Have a dead letter stored that stands for an undecodable message."""
    value, more = letter
    origin = Origin("orders", "workers", P, Offset(number), 9)
    headers = headers_of(None, origin, DeadLetter(1, number, DeadLetterReason.UNDECODABLE, 0))
    headers |= {f"partq-dead-letter-{name}": text for name, text in more.items()}
    data = batch.encode([batch.encode_message(batch.Message(None, value, headers))], [0])
    road = running.broker.dead_letters.target
    await road.send(TARGET, 0, data, producer_of(UID, P, "workers"), number)


async def bury_all(running, target, *what):
    """Store dead letters in this order: a number for an ordinary one, else a broken one."""
    for number, each in enumerate(what):
        if isinstance(each, tuple):
            await bury_broken(running, number, each)
        else:
            await bury(running, target, 1, first=number)


async def replayed(target, *, status):
    result = await run(target, "replay", "--yes", "--json")
    assert result.exit_code == status, result.output
    return json.loads(result.stdout), result.stderr


async def test_undecodable_messages_stay_dead_letters(running, target, stored):
    await running.assign("m", [0])
    await publish(running, GARBAGE, GARBAGE)
    await publish(running, "next", producer="q")
    await consume(running, "next")
    before = [(message.value, told(message)) for message in await letters(stored, 2)]
    await eventually(lambda: not consumed(running).outbox.has_work, "all is sent")
    answer, said = await replayed(target, status=1)
    assert (answer["replayed"], answer["repeated"], answer["skipped"]) == (0, 0, 2)
    assert (await running.broker.partitions.read(P)).next == 3, "nothing came back"
    assert [(message.value, told(message)) for message in await stored()] == before
    assert "2 dead letters are skipped" in said
    assert "does not decode" in said
    assert f"partq dead-letters drop --queue {TARGET}" in said
    plain = await run(target, "replay", "--yes")
    assert plain.exit_code == 1
    assert plain.stdout == "0 dead letters are replayed; 2 are skipped\n"


async def test_those_between_them_are_sent_and_freed(running, target, sent, kept):
    await bury_all(running, target, BATCH, 1, REFERENCE, LEFT_OUT, 4, 5)
    answer, _ = await replayed(target, status=1)
    assert (answer["replayed"], answer["skipped"]) == (3, 3)
    row = answer["partitions"]["1.0"]
    assert (row["skipped"], row["skipped_because"]["code"]) == (3, "undecodable")
    assert await sent() == [b"dead 1", b"dead 4", b"dead 5"]
    left = await kept()
    assert [message.value for message in left] == [BROKEN, b"", b""]
    assert [(told(each).get("batch"), told(each).get("omitted")) for each in left] == [
        (None, None), ("1.9.0", None), (None, "70000"),
    ]  # fmt: skip
    record = await target.broker.partitions.read(P)
    assert (record.trimmed, record.next) == (6, 9)
    again, _ = await replayed(target, status=1)
    assert (again["replayed"], again["repeated"], again["skipped"]) == (0, 0, 3)
    record = await target.broker.partitions.read(P)
    assert (record.trimmed, record.next) == (6, 9), "they are written again only if they must be"
    assert (await run(target, "drop", "--yes")).stdout == "3 dead letters are dropped\n"
    await replayed(target, status=0)


@pytest.mark.parametrize("step", ["send", "move", "trim"])
@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
async def test_a_replay_that_dies_at_any_step_loses_and_repeats_nothing(
    running, target, sent, kept, step, is_done
):
    await bury_all(running, target, BATCH, 1, REFERENCE, 3, LEFT_OUT)
    road, log = target.broker.dead_letters.target, target.broker.log
    send, trim, seen = road.send, log.trim, []

    async def die_at(call, *args, **kwargs):
        if is_done:
            await call(*args, **kwargs)
        raise StoreUnavailableError("the broker dies here")

    async def send_or_die(queue, *args):
        seen.append(queue)
        if step == ("move" if queue == TARGET else "send") and seen.count(queue) == 2:
            return await die_at(send, queue, *args)
        return await send(queue, *args)

    async def trim_or_die(*args, **kwargs):
        return await (die_at if step == "trim" else _call)(trim, *args, **kwargs)

    road.send, log.trim = send_or_die, trim_or_die
    await replayed(target, status=1)
    road.send, log.trim = send, trim
    target.broker.owned[P].replay = None  # what was in memory dies with the broker
    answer, _ = await replayed(target, status=1)
    assert answer["partitions"]["1.0"].get("stopped") is None
    assert await sent() == [b"dead 1", b"dead 3"]
    assert sorted(told(each)["undecodable"] for each in await kept()) == ["0", "1", "2"]


async def _call(call, *args, **kwargs):
    return await call(*args, **kwargs)


async def test_more_of_them_than_a_call_takes_are_set_aside_by_several_calls(
    running, target, sent, kept, monkeypatch
):
    monkeypatch.setattr("partq.cli.dead_letters.replay.PAGE", 2)
    await bury_all(running, target, *[REFERENCE] * 5, 5, *[REFERENCE] * 5, 11)
    answer, _ = await replayed(target, status=1)
    assert (answer["replayed"], answer["repeated"], answer["skipped"]) == (2, 0, 10)
    assert await sent() == [b"dead 5", b"dead 11"]
    assert len(await kept()) == 10


async def test_a_time_that_ends_while_they_are_set_aside_loses_none(
    running, target, sent, kept, monkeypatch
):
    await bury_all(running, target, *[REFERENCE] * 3, 3)
    monkeypatch.setattr(replay, "BUDGET_S", 0.0)
    path = f"/v1/queues/{TARGET}/dead-letters/replay"
    skipped = offset = calls = 0
    while offset < 4:
        calls += 1
        assert calls < 20, "no call of them all came further"
        body = {"partitions": ["1.0"], "offsets": {"1.0": offset} if calls > 1 else {}}
        _, answer = await target.call("POST", path, token=ADMIN, json=body)
        row = answer["partitions"]["1.0"]
        offset, skipped = row["next"], skipped + row["skipped"]
    assert (skipped, await sent(), len(await kept())) == (3, [b"dead 3"], 3)
    assert calls == 7, "three to skip, three to set one aside each, and one to send"


async def test_an_offset_that_no_call_has_come_to_passes_nothing_over(running, target, sent):
    """What lies below it would be freed, and never sent."""
    await bury(running, target, 4)
    path = f"/v1/queues/{TARGET}/dead-letters/replay"
    body = {"partitions": ["1.0"], "offsets": {"1.0": 3}}
    _, answer = await target.call("POST", path, token=ADMIN, json=body)
    assert answer["partitions"]["1.0"]["replayed"] == 4
    assert await sent() == [b"dead %d" % at for at in range(4)]


async def test_an_offset_ahead_of_what_calls_have_come_to_passes_nothing_over(
    running, target, sent
):
    """A caller that has begun cannot jump either: what it leaves out would be freed."""
    await bury(running, target, 6)
    path = f"/v1/queues/{TARGET}/dead-letters/replay"
    body = {"partitions": ["1.0"], "max_messages": 1}
    for offsets, next_at in (({}, 1), ({"1.0": 5}, 2)):
        _, answer = await target.call("POST", path, token=ADMIN, json=body | {"offsets": offsets})
        assert answer["partitions"]["1.0"]["next"] == next_at
    assert await sent() == [b"dead 0", b"dead 1"]
    assert (await target.broker.partitions.read(P)).trimmed == 2


async def test_what_is_no_dead_letter_is_not_dropped_by_a_wrong_name(running, target, kept):
    """A queue that nobody consumes, such as one that is only browsed, was emptied."""
    path = f"/v1/queues/{TARGET}/messages"
    for value in ("mine", "mine, too"):
        status, answer = await target.call("POST", path, json={"key": KEY, "value": value})
        assert (status, answer["partition"]) == (201, "1.0"), answer
    for arguments in (("--yes",), ("--dry-run",)):
        refused = await run(target, "drop", *arguments)
        assert (refused.exit_code, refused.stdout[:14]) == (1, "0 dead letters"), refused.output
        assert f"of queue {TARGET}: message 0 is not a dead letter" in refused.stderr
        assert "--partition 1.0 --before 2" in refused.stderr
    assert [message.value for message in await kept()] == [b"mine", b"mine, too"]
    listed = await run(target, "list")
    assert "2 of them are not dead letters" in listed.stderr
    forced = await run(target, "drop", "--yes", "--partition", "1.0", "--before", "2")
    assert (forced.exit_code, await kept()) == (0, [])


async def test_what_arrives_while_it_is_asked_about_is_not_dropped(
    running, target, kept, monkeypatch
):
    await bury(running, target, 3)
    loop, asked = asyncio.get_running_loop(), []

    def answer_late(question, **_):
        asked.append(question)
        asyncio.run_coroutine_threadsafe(bury(running, target, 2, first=3), loop).result(30)

    monkeypatch.setattr("partq.cli.dead_letters.dead_letters._confirm", answer_late)
    dropped = await run(target, "drop")
    assert dropped.stdout == "3 dead letters are dropped\n", dropped.output
    assert asked == [f"drop 3 dead letters of {TARGET} for good?"]
    assert [message.value for message in await kept()] == [b"dead 3", b"dead 4"]


@pytest.fixture
def limited(target, monkeypatch):
    """Let only so many calls of a method of the log through: an endless loop ends."""

    def limit(name):
        call, left = getattr(target.broker.log, name), iter(range(100))

        async def count(*args, **kwargs):
            if next(left, None) is None:
                raise StoreUnavailableError(f"{name} is called again and again")
            return await call(*args, **kwargs)

        monkeypatch.setattr(target.broker.log, name, count)

    return limit


async def test_what_is_dropped_between_its_calls_ends_a_replay(running, target, sent, limited):
    await bury(running, target, 2)
    path = f"/v1/queues/{TARGET}/dead-letters"
    body = {"partitions": ["1.0"], "max_messages": 1}
    _, answer = await target.call("POST", f"{path}/replay", json=body)
    assert answer["partitions"]["1.0"]["next"] == 1
    await target.call("POST", f"{path}/drop", json={"partitions": ["1.0"]})
    await bury(running, target, 1, first=2)
    limited("read")
    _, answer = await target.call("POST", f"{path}/replay", json=body | {"offsets": {"1.0": 1}})
    row = answer["partitions"]["1.0"]
    assert (row.get("stopped"), row["next"], row["end"]) == (None, 2, 2)
    assert await sent() == [b"dead 0"]


async def test_a_drop_ends_where_a_pin_holds_the_log(running, target, kept, limited):
    await bury(running, target, 3)
    pin = {"offsets": {"1.0": 1}}
    status, answer = await target.call("PUT", f"/v1/queues/{TARGET}/pins/reader", json=pin)
    assert status == 200, answer
    limited("trim")
    drop = f"/v1/queues/{TARGET}/dead-letters/drop"
    _, answer = await target.call("POST", drop, json={"partitions": ["1.0"]})
    assert "error" not in answer["partitions"]["1.0"], answer
    assert [message.value for message in await kept()] == [b"dead 1", b"dead 2"]
