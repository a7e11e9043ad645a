"""A member moves the cursor of a partition that it has: back, forward, and never by half."""

import logging

import pytest

from partq.errors import StoreUnavailableError
from partq.wire import frames

P0 = (1, 0)


@pytest.fixture
def consumed(running, peers):
    """Return what the broker knows of the group in partition 1.0."""
    return lambda: running.broker.owned[peers.partition_id(0)].groups["workers"]


@pytest.fixture
def seek(scene):
    """Seek with what the member has in hand; return the answer. Frames before it are kept."""

    async def seek(token=None, *, request=7, flow=None, **place):
        token = token or scene.held
        flow = flow or scene.source
        await flow.send(frames.Seek(request, *_under(token), **place))
        answer = await flow.pick((frames.Sought, frames.SeekRefused))
        assert answer.request == request
        return answer

    return seek


def _under(token):
    return token.generation, token.partition, token.broker_epoch, token.epoch


async def test_back_under_a_new_token_and_what_was_in_flight_is_void(
    running, scene, seek, peers, consumed, caplog
):
    caplog.set_level(logging.INFO)
    source = scene.source
    assert await source.ack(scene.held, 2) == ""
    assert await seek(to="earliest") == frames.Sought(7, 0)
    revoked, _ = await source.expect(frames.Revoked)
    assert (revoked.epoch, revoked.cause) == (scene.held.epoch, 8)
    assigned, _ = await source.expect(frames.Assigned)
    assert (assigned.cursor, assigned.broker_epoch) == (0, scene.held.broker_epoch)
    frame, values = await source.deliver()
    assert (values, frame.cause, frame.redeliveries) == (["a", "b", "c"], 8, [])
    assert frame.epoch == assigned.epoch == consumed().epoch > scene.held.epoch
    assert await source.ack(scene.held, 3) == "fenced"
    assert await source.ack(frame, 3) == ""
    record = await running.broker.partitions.read_cursor(peers.partition_id(0), "workers")
    assert record.cursor == 3
    assert "1.0 of workers reset from 2 to 0" in caplog.messages
    assert "1.0 of workers: moved by a seek of member m" in caplog.messages


@pytest.mark.parametrize(
    ("place", "cursor", "values"),
    [
        ({"to": "latest"}, 3, []),
        ({"offset": 2}, 2, ["c"]),
        ({"offset": 3}, 3, []),
        ({"at_ms": 0}, 0, ["a", "b", "c"]),
    ],
)
async def test_to_each_kind_of_place(scene, seek, place, cursor, values):
    assert await seek(**place) == frames.Sought(7, cursor)
    await scene.producer.publish("d")
    got = await scene.source.take(len(values) + 1)
    assert got == [*values, "d"]


async def test_to_a_time_between_two_messages(running, scene, seek, peers):
    stored_at = scene.held.at_ms
    await peers.eventually(
        lambda: running.broker.wall_clock() * 1000 > stored_at + 1, "the clock has moved on"
    )
    await scene.producer.publish("later")
    assert await seek(at_ms=stored_at + 1) == frames.Sought(7, 3)
    assert (await scene.source.deliver())[1] == ["later"]


async def test_a_place_that_was_trimmed_becomes_the_first_that_is_stored(scene, seek):
    first = await scene.trim()
    held = await scene.source.ack(scene.held, 3)
    assert held == ""
    assert (await seek(offset=0)).cursor >= first > 0


@pytest.mark.parametrize(
    ("place", "code", "text"),
    [
        ({}, "bad_request", "seek: got none of them; expected one of to, at_ms and offset"),
        ({"to": "latest", "offset": 1}, "bad_request", "seek: got to, offset"),
        ({"to": "yesterday"}, "bad_request", "'yesterday'; expected earliest or latest"),
        ({"at_ms": 2**53}, "bad_request", "lies in the future"),
        ({"offset": 4}, "rolled_back", "the log ends at 3, below 4"),
        ({"offset": 2, "append_broker_epoch": 1}, "rolled_back", "the position says 1"),
    ],
)
async def test_no_such_place_moves_nothing(running, scene, seek, place, code, text):
    before = await running.state()
    refused = await seek(**place)
    assert refused.code == code
    assert text in refused.message
    assert await running.state() == before
    assert await scene.source.ack(scene.held, 3) == "", "it goes on under its token"


async def test_a_position_that_was_read_from_the_log_is_compared_with_it(scene, seek):
    epoch = scene.held.append_broker_epoch
    assert await seek(offset=2, append_broker_epoch=epoch) == frames.Sought(7, 2)


async def test_a_token_that_is_over_moves_nothing(running, scene, seek, consumed):
    """A late frame, or one of a flow that has lost the partition."""
    assert await seek(to="earliest") == frames.Sought(7, 0)
    frame, _ = await scene.source.deliver()
    assert await scene.source.ack(frame, 3) == ""
    late = await seek(to="earliest")
    assert late.code == "fenced"
    assert f"epoch {scene.held.epoch}" in late.message
    other = await scene.target()
    stolen = await seek(frame, flow=other, to="earliest")
    assert stolen.code == "fenced"
    assert consumed().book.cursor == 3


async def test_a_partition_of_another_broker_or_none(scene, seek):
    nowhere = frames.Assigned(1, 9, 1, 1, 0)
    refused = await seek(nowhere, to="earliest")
    assert (refused.code, "1.9" in refused.message) == ("unknown_partition", True)
    not_held = frames.Assigned(1, 1, 1, 1, 0)
    assert (await seek(not_held, to="earliest")).code == "fenced"


async def test_during_a_handoff_it_is_refused_and_can_be_repeated(scene, seek, consumed):
    handoff = await scene.paused()
    refused = await seek(to="earliest")
    assert (refused.code, refused.retry_after_ms) == ("unavailable", 1000)
    assert "a handoff is under way" in refused.message
    assert consumed().pause is not None, "which goes on"
    assert (await handoff.cancel())["code"] == ""
    assert await seek(to="earliest") == frames.Sought(7, 0)


async def test_a_handoff_that_begins_while_acks_are_stored_comes_first(
    running, scene, seek, peers, consumed
):
    gate = peers.Gate(running.broker.partitions, "flush")
    await scene.source.send(frames.Ack(1, *_under(scene.held), scene.held.delivery, upto=2))
    await gate.reached.wait()
    await scene.source.send(frames.Seek(7, *_under(scene.held), to="earliest"))
    await peers.eventually(lambda: consumed().is_awaited, "the seek waits for the acks")
    await (await scene.handoff()).pause()
    gate.opened.set()
    assert (await scene.source.pick(frames.SeekRefused)).code == "unavailable"
    assert (consumed().epoch, consumed().book.cursor) == (scene.held.epoch, 2)
    assert consumed().pause is not None


async def test_acks_that_came_before_it_are_stored_first(running, scene, seek, peers):
    """One that is being stored must not undo the seek."""
    gate = peers.Gate(running.broker.partitions, "flush")
    await scene.source.send(frames.Ack(1, *_under(scene.held), scene.held.delivery, upto=3))
    await gate.reached.wait()
    await scene.source.send(frames.Seek(7, *_under(scene.held), to="earliest"))
    gate.opened.set()
    assert await scene.source.expect(frames.AckConfirmed) == (frames.AckConfirmed(1), b"")
    assert await scene.source.pick(frames.Sought) == frames.Sought(7, 0)
    record = await running.broker.partitions.read_cursor(peers.partition_id(0), "workers")
    assert (record.cursor, record.acked) == (0, [])


async def test_a_second_seek_waits_for_the_answer_to_the_first(running, scene, seek, peers):
    gate = peers.Gate(running.broker.partitions, "reset")
    await scene.source.send(frames.Seek(1, *_under(scene.held), to="earliest"))
    await gate.reached.wait()
    second = await seek(request=2, to="latest")
    assert (second.code, "is under way" in second.message) == ("conflict", True)
    gate.opened.set()
    assert await scene.source.pick(frames.Sought) == frames.Sought(1, 0)


async def test_a_store_that_does_not_answer_moves_nothing(
    running, scene, seek, peers, consumed, monkeypatch
):
    monkeypatch.setattr("partq.broker.operations.reset.SETTLE_TIMEOUT_S", 0.05)
    gate = peers.Gate(running.broker.partitions, "flush")
    await scene.source.send(frames.Ack(1, *_under(scene.held), scene.held.delivery, upto=2))
    await gate.reached.wait()
    refused = await seek(to="latest")
    assert refused.code == "unavailable"
    assert "the store does not answer; nothing was moved: repeat the call" in refused.message
    gate.opened.set()
    await scene.source.expect(frames.AckConfirmed)
    assert consumed().epoch == scene.held.epoch
    assert await scene.source.ack(scene.held, 3) == "", "it goes on under its token"


async def test_a_failure_of_the_broker_itself_is_answered_and_logged(
    running, scene, seek, monkeypatch, caplog
):
    async def fail(*_args, **_kwargs):
        raise KeyError("a mistake")

    with monkeypatch.context() as patch:
        patch.setattr("partq.broker.api.routes.flow.seek", fail)
        refused = await seek(to="earliest")
    assert refused.code == "internal"
    assert "may have moved" in refused.message
    assert "KeyError: 'a mistake'" in caplog.text
    assert await seek(to="earliest") == frames.Sought(7, 0), "the next one is not in its way"


async def test_an_answer_of_the_store_that_is_lost_is_said_and_a_repeat_moves_it(
    running, scene, seek, peers, consumed
):
    """The partition is claimed again, and the flow has it under a new token."""
    partitions, real = running.broker.partitions, running.broker.partitions.reset

    async def lose_the_answer(*args, **kwargs):
        partitions.reset = real
        await real(*args, **kwargs)
        raise StoreUnavailableError("no answer")

    assert await scene.source.ack(scene.held, 3) == ""
    partitions.reset = lose_the_answer
    lost = await seek(to="earliest")
    assert lost.code == "unavailable"
    assert "may have moved; seek again" in lost.message
    frame, values = await scene.source.deliver()
    assert values == ["a", "b", "c"], "it had moved"
    assert frame.broker_epoch > scene.held.broker_epoch
    assert await seek(frame, to="latest") == frames.Sought(7, 3)


async def test_a_flow_that_is_lost_meanwhile_leaves_it_moved(running, scene, seek, peers):
    gate = peers.Gate(running.broker.partitions, "reset")
    await scene.source.send(frames.Seek(1, *_under(scene.held), offset=1))
    await gate.reached.wait()
    await scene.source.close()
    await peers.eventually(lambda: not list(running.broker.flow_registry.flows), "the flow is gone")
    gate.opened.set()
    again = await peers.open_flow(running, "m", "other")
    assert (await again.deliver())[1] == ["b", "c"]


async def test_a_broker_says_that_it_takes_seeks(running, peers):
    flow = await peers.connect_flow(running)
    await flow.send(frames.Bind("m", "i", 10))
    bound, _ = await flow.expect(frames.Bound)
    assert bound.takes_seeks
