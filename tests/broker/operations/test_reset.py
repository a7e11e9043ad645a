"""A group's cursors are moved by an administrator: back, forward, and never by half."""

import asyncio

import pytest

from partq.errors import StoreUnavailableError

RESET = "/v1/queues/orders/groups/workers/reset"


@pytest.fixture
def reset(running, peers):
    async def reset(status=200, *, token=peers.ADMIN, at=running, **body):
        got, answer = await at.call("POST", RESET, json=body, token=token)
        assert got == status, answer
        return answer if status != 200 else answer["partitions"]

    return reset


async def test_a_dry_run_shows_and_changes_nothing(running, scene, reset):
    before = await running.state()
    shown = await reset(to="latest", is_dry_run=True)
    assert list(shown) == ["1.0", "1.1", "1.2", "1.3"]
    assert shown["1.0"].pop("epoch") == scene.held.epoch
    assert shown["1.0"] == {
        "member": "m", "is_bound": True, "cursor": 0, "to": 3, "wanted": 3, "first": 0, "end": 3,
    }  # fmt: skip
    assert await running.state() == before


async def test_back_to_where_a_message_is_delivered_again_for_this_cause(
    running, scene, reset, peers
):
    """Refused while a member is connected; forced, its older tokens are over."""
    source = scene.source
    assert await source.ack(scene.held, 2) == ""
    refused = await reset(to="earliest", partitions=["1.0"])
    assert refused["1.0"]["error"]["code"] == "conflict"
    assert (await running.state())["cursor"] == 2

    moved = await reset(to="earliest", partitions=["1.0"], is_forced=True)
    assert (moved["1.0"]["cursor"], moved["1.0"]["to"]) == (2, 0)
    frame, values = await source.deliver()
    assert (values, frame.cause, frame.redeliveries) == (["a", "b", "c"], 8, [])
    assert frame.epoch > scene.held.epoch
    assert await source.ack(scene.held, 3) == "fenced"
    assert await source.ack(frame, 3) == ""
    record = await running.broker.partitions.read_cursor(peers.partition_id(0), "workers")
    assert record.cursor == 3
    await scene.producer.publish("d")
    assert (await source.deliver())[1] == ["d"]


async def test_forward_skips_and_the_log_is_freed(running, scene, reset, peers):
    await scene.source.close()
    await peers.eventually(lambda: not list(running.broker.flow_registry.flows), "the flow is gone")
    moved = await reset(offset=2, partitions=["1.0"])
    assert moved["1.0"]["to"] == 2
    flow = await peers.open_flow(running, "m", "other")
    assert (await flow.deliver())[1] == ["c"]
    # The whole batch is still there: it holds a message that is not acknowledged.
    assert (await reset(to="earliest", partitions=["1.0"], is_dry_run=True))["1.0"]["first"] == 0
    skipped = await reset(to="latest", partitions=["1.0"], is_forced=True)
    assert skipped["1.0"]["to"] == 3

    async def first():
        shown = await reset(to="earliest", partitions=["1.0"], is_dry_run=True)
        return shown["1.0"]["first"] == 3

    await peers.eventually(first, "the batch is freed")


async def test_what_is_trimmed_is_said(running, scene, reset, peers):
    first = await scene.trim()
    for body in ({"to": "earliest"}, {"offset": 0}, {"at_ms": 0}):
        shown = (await reset(**body, partitions=["1.0"], is_dry_run=True))["1.0"]
        assert shown["to"] == shown["first"] >= first
        assert shown["wanted"] <= shown["first"]


async def test_an_answer_that_is_lost_leaves_nothing_in_doubt(running, scene, reset, peers):
    """The partition is claimed again, and the reset can be repeated."""
    partitions, real = running.broker.partitions, running.broker.partitions.reset

    async def lose_the_answer(*args, **kwargs):
        partitions.reset = real
        await real(*args, **kwargs)
        raise StoreUnavailableError("no answer")

    assert await scene.source.ack(scene.held, 3) == ""
    partitions.reset = lose_the_answer
    before = await running.state()
    lost = await reset(to="earliest", partitions=["1.0"], is_forced=True)
    assert lost["1.0"]["error"]["code"] == "store_unavailable"

    async def repeated():
        answer = await reset(to="earliest", partitions=["1.0"], is_forced=True)
        return "error" not in answer["1.0"]

    await peers.eventually(repeated, "the repeat goes through")
    after = await running.state()
    assert after["cursor"] == 0
    assert after["broker_epoch"] > before["broker_epoch"]
    frame, values = await scene.source.deliver()
    while not values or frame.broker_epoch != after["broker_epoch"]:
        frame, values = await scene.source.deliver()
    assert values[0] == "a"


async def test_a_store_that_does_not_answer_moves_nothing(
    running, scene, reset, peers, monkeypatch
):
    monkeypatch.setattr("partq.broker.operations.reset.SETTLE_TIMEOUT_S", 0.05)
    gate = peers.Gate(running.broker.partitions, "flush")
    acking = asyncio.create_task(scene.source.ack(scene.held, 2))
    await gate.reached.wait()
    refused = await reset(to="latest", partitions=["1.0"], is_forced=True)
    assert refused["1.0"]["error"]["code"] == "unavailable"
    gate.opened.set()
    assert await acking == ""
    assert (await running.state())["epoch"] == scene.held.epoch
    assert await scene.source.ack(scene.held, 3) == "", "the member was not unbound either"


async def test_a_late_repeat_moves_nothing_back(running, scene, reset, peers):
    """It names the epoch that it was shown, which is over once the cursor was moved or bound."""
    shown = (await reset(to="earliest", partitions=["1.0"], is_dry_run=True))["1.0"]
    late = {"to": "earliest", "partitions": ["1.0"], "is_forced": True}
    late["epochs"] = {"1.0": shown["epoch"]}
    moved = (await reset(**late))["1.0"]
    assert moved["epoch"] > shown["epoch"]
    frame, values = await scene.source.deliver()
    assert (values, await scene.source.ack(frame, 3)) == (["a", "b", "c"], "")

    refused = (await reset(**late))["1.0"]
    assert refused["error"]["code"] == "conflict", refused
    assert f"epoch {shown['epoch']}" in refused["error"]["message"]
    record = await running.broker.partitions.read_cursor(peers.partition_id(0), "workers")
    assert record.cursor == 3, "what is acknowledged stays so"
    await scene.producer.publish("d")
    assert (await scene.source.deliver())[1] == ["d"], "and the member continues under its epoch"


async def test_who_names_no_epoch_moves_it_as_before(running, scene, reset):
    assert await scene.source.ack(scene.held, 2) == ""
    for _ in range(2):
        moved = await reset(to="earliest", partitions=["1.0"], is_forced=True)
        assert moved["1.0"]["to"] == 0


@pytest.fixture
def consumed(running, peers):
    """Return what the broker knows of the group in partition 1.0."""
    return lambda: running.broker.owned[peers.partition_id(0)].groups["workers"]


async def test_it_ends_a_pause_and_its_handoff(scene, reset, consumed):
    handoff = await scene.paused()
    await reset(to="earliest", partitions=["1.0"], is_forced=True)
    assert consumed().pause is None
    assert consumed().closed_attempt == handoff.token["attempt"]
    assert (await scene.source.deliver())[1] == ["a", "b", "c"]
    again = await handoff.pause(epoch=consumed().epoch)
    assert again["code"] == "attempt_refused", "a late call of the handoff pauses nothing"


async def test_it_forgets_what_could_not_be_delivered(scene, reset, consumed):
    """What the log misses, and what does not decode, is found again if it still lies ahead."""
    consumed().missing = "message 3 is not in the log"
    consumed().outbox.aside[1] = None
    await reset(to="earliest", partitions=["1.0"], is_forced=True)
    assert (consumed().missing, consumed().outbox.aside) == ("", {})
    assert (await scene.source.deliver())[1] == ["a", "b", "c"]


async def test_the_stored_book_says_that_dead_letters_are_done_with(
    running, scene, reset, consumed, store, peers
):
    """Each waits in the outbox, and is not delivered a second time."""
    partition = peers.partition_id(0)
    fields = ["outbox", "11:1:1:3", "outbox_lowest", 1]
    keys = [running.broker.keys.cursor(partition, "workers")]
    await store.run("write_fields", keys, [2, *fields])
    await reset(to="earliest", partitions=["1.0"], is_forced=True)
    await running.broker.cursor_writer.settle(consumed())
    record = await running.broker.partitions.read_cursor(partition, "workers")
    assert (record.cursor, record.acked) == (0, [(1, 2)])
    assert [letter.offset for letter in record.outbox] == [1]


WRONG = {
    "an epoch of no partition": {"to": "latest", "epochs": {"x": 1}},
    "nowhere": {},
    "two places": {"to": "earliest", "offset": 1},
    "an offset for all partitions": {"offset": 1},
    "a negative one": {"offset": -1, "partitions": ["1.0"]},
    "a time that never comes": {"at_ms": 2**60},
    "a time in seconds": {"at_ms": 1_795_870_000},
    "no such place": {"to": "yesterday"},
    "no name": {"to": "latest", "partitions": ["x"]},
    "a name twice": {"to": "latest", "partitions": ["1.0"] * 2},
}


async def test_what_makes_no_sense_is_refused(reset, peers):
    for case, body in WRONG.items():
        answer = await reset(400, **body)
        assert answer["error"]["code"].startswith("bad_"), case
    answer = await reset(400, **WRONG["a time in seconds"], is_dry_run=True)
    assert "reset: at_ms: got 1795870000, which is usually not" in answer["error"]["message"]
    answer = await reset(404, to="latest", partitions=["1.9"])
    assert answer["error"]["code"] == "unknown_partition"
    await reset(403, to="latest", token=peers.CONSUME)


async def test_any_broker_can_be_asked(start_broker, reset, running, scene, peers, monkeypatch):
    """It asks the owners; what nobody serves is said, and the others are moved all the same."""
    await scene.source.close()
    await peers.eventually(lambda: not list(running.broker.flow_registry.flows), "the flow is gone")
    other = await start_broker("orders-1")
    await peers.eventually(
        lambda: all(map(other.broker.claims.owner_url, other.broker.config.layout.partitions())),
        "it knows who owns what",
    )
    known = other.broker.claims.owner_url
    monkeypatch.setattr(
        other.broker.claims, "owner_url", lambda p: None if p.index == 3 else known(p)
    )
    moved = await reset(at=other, to="latest")
    assert moved["1.3"]["error"]["code"] == "unavailable"
    assert [moved[name].get("to") for name in ("1.0", "1.1", "1.2")] == [3, 0, 0]
    assert (await running.state())["cursor"] == 3


@pytest.mark.parametrize("name", ["1.00", "01.0", "1.\u0660", "1." + "0" * 5000])
async def test_another_spelling_of_a_partition_is_refused_by_every_call(
    running, scene, peers, name
):
    """It passed as the same partition, but what the call says of it was not found by its name."""
    before = await running.state()
    queue = "/v1/queues/orders"
    late = {"to": "latest", "partitions": ["1.0"], "epochs": {name: 0}, "is_forced": True}
    calls = [
        ("POST", RESET, late, peers.ADMIN),
        ("PUT", f"{queue}/pins/r", {"offsets": {name: 2}}, peers.CONSUME),
        ("POST", f"{queue}/browse", {"offsets": {name: 2}}, peers.CONSUME),
        ("POST", f"{queue}/positions", {"offsets": {name: 2}}, peers.CONSUME),
    ]
    for method, path, body, token in calls:
        status, answer = await running.call(method, path, json=body, token=token)
        assert (status, answer["error"]["code"]) == (400, "bad_request"), (path, answer)
        assert "expected GENERATION.INDEX" in answer["error"]["message"]
    assert await running.state() == before
