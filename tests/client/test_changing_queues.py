"""A consumer of several queues when `find` fails, and queues come back, are many, none or down."""

import asyncio

import pytest

from partq import ConnectionOptions, QueuesConsumer, SettingsError, UnavailableError
from partq.testing import eventually
from partq.wire import frames
from tests.client.member import WAIT_S, assigned, deliver
from tests.client.test_queues_consumer import PATIENT, flow_of, found

DEAD = "http://127.0.0.1:1"


def open_consumer(find, **settings):
    options = {"group": "workers", "pattern": ".*", "find_every_s": 0.05, "leave_timeout_s": 0}
    return QueuesConsumer(find=find, **{**options, **PATIENT, **settings})


async def take(consumer):
    async with asyncio.timeout(WAIT_S):
        return await anext(consumer)


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        (None, "NoneType, expected a list of ConnectionOptions"),
        (7, "int, expected a list of ConnectionOptions"),
        ("orders", "str, expected a list of ConnectionOptions"),
        ({"orders": 1}, "dict, expected a list of ConnectionOptions"),
        (["orders"], "a list with str, expected ConnectionOptions alone"),
    ],
)
@pytest.mark.parametrize("is_coroutine", [False, True])
async def test_a_find_that_returns_no_list_is_named(answer, got, is_coroutine):
    async def later():
        return answer

    consumer = open_consumer(later if is_coroutine else lambda: answer)
    with pytest.raises(SettingsError) as caught:
        await consumer.__aenter__()
    assert caught.value.message.startswith(f"find: returned {got}")
    await consumer.close()


async def test_such_an_answer_changes_nothing_later(peer, stored_batch, caplog):
    answers = [found(a=peer.url)(), None]
    async with open_consumer(
        lambda: answers.pop(0) if len(answers) > 1 else answers[0]
    ) as consumer:
        flow = await flow_of(peer)
        await eventually(lambda: "find: returned NoneType, expected" in caplog.text, "it is told")
        assert consumer.queues == {"a"}
        await flow.send(deliver(0, 1), payload=stored_batch(b"1"))
        assert (await take(consumer)).value == b"1"


async def test_a_queue_that_is_removed_and_made_again_is_consumed_again(peer, stored_batch):
    """Under its old name; the one that was removed is left first."""
    queues = found(a=peer.url)()
    async with open_consumer(lambda: list(queues)) as consumer:
        first = await flow_of(peer, (stored_batch(b"old"), 1))
        old = await take(consumer)
        gone, queues[:] = queues[:], []
        await first.closed()
        await eventually(lambda: not consumer.queues, "it is left")
        assert consumer.partitions == frozenset()
        queues[:] = gone
        again = await peer.flow()
        await again.send(assigned((6, 10)))
        await again.send(deliver(0, 1, (6, 10)), payload=stored_batch(b"new"))
        new = await take(consumer)
        assert (old.value, new.value, new.queue) == (b"old", b"new", "a")
        # An ack of the one that is gone goes nowhere: it does not count for the new one.
        consumer.ack_nowait(old)
        consumer.ack_nowait(new)
        ack = await again.next(frames.Ack)
        assert (ack.broker_epoch, ack.epoch, ack.ranges) == (6, 10, [(0, 1)])
        await again.send(frames.AckConfirmed(ack.request))


async def test_a_pattern_that_no_queue_fits_waits_for_one(peer, stored_batch):
    queues, looks = found(other=DEAD)(), []

    def find():
        looks.append(len(queues))
        return queues

    async with open_consumer(find, pattern="orders-.*") as consumer:
        waiting = asyncio.create_task(take(consumer))
        await eventually(lambda: len(looks) > 2, "it has looked again")
        assert not waiting.done()
        assert consumer.queues == frozenset()
        assert consumer.stats() == {}
        queues += found(orders_a=peer.url)()
        await flow_of(peer, (stored_batch(b"1"), 1))
        assert (await waiting).queue == "orders-a"
    async with open_consumer(list) as consumer:
        consumer.leave()
        assert [message async for message in consumer] == [], "it ends without any queue"


async def test_a_queue_without_a_broker_holds_up_no_other(peer, stored_batch):
    """Also one whose broker is lost while it is consumed."""
    queues = found(a=peer.url, down=DEAD)
    errors = []
    async with open_consumer(queues, on_error=errors.append, connect_timeout_s=0.1) as consumer:
        flow = await flow_of(peer, (stored_batch(b"1"), 1))
        assert (await take(consumer)).value == b"1"
        await eventually(lambda: errors, "the error of the other one is told")
        assert isinstance(errors[0], UnavailableError)
        await flow.send(deliver(1, 2), payload=stored_batch(b"2"))
        assert (await take(consumer)).value == b"2"


async def test_an_on_error_that_is_a_coroutine_function_is_awaited(peer):
    """One call after the other; closing waits for the last."""
    begun, ended, may_end = [], [], asyncio.Event()

    async def on_error(error):
        begun.append(error)
        await may_end.wait()
        ended.append(error)

    options = {"connect_timeout_s": 0.1, "leave_timeout_s": WAIT_S}
    async with open_consumer(found(down=DEAD, gone=DEAD), on_error=on_error, **options):
        await eventually(lambda: begun, "the first error is told")
        may_end.set()
    assert isinstance(ended[0], UnavailableError)
    assert ended == begun


@pytest.mark.parametrize("is_coroutine", [False, True])
async def test_what_an_on_error_raises_is_raised_by_iterating(is_coroutine):
    def on_error(error):
        raise KeyError("a mistake")

    async def on_error_later(error):
        raise KeyError("a mistake")

    told = on_error_later if is_coroutine else on_error
    async with open_consumer(found(down=DEAD), on_error=told, connect_timeout_s=0.1) as consumer:
        for _ in range(2):
            with pytest.raises(KeyError, match="a mistake"):
                await take(consumer)


async def test_a_queue_whose_broker_is_lost_holds_up_no_other(peer, other_peer, stored_batch):
    async with open_consumer(found(a=peer.url, b=other_peer.url)) as consumer:
        lost, stays = await flow_of(peer), await flow_of(other_peer)
        await eventually(lambda: consumer.queues == {"a", "b"}, "both are consumed")
        peer.refusal = (503, "unavailable")
        await lost.drop()
        for number in range(3):
            await stays.send(deliver(number, number + 1), payload=stored_batch(b"%d" % number))
            message = await take(consumer)
            assert (message.queue, message.value) == ("b", b"%d" % number)


async def test_a_thousand_queues_are_as_many_as_are_said(peer, stored_batch, caplog):
    def find():
        names = [f"q{number:04}" for number in range(1000)]
        return [ConnectionOptions(peer.url if name == "q0007" else DEAD, name) for name in names]

    async with open_consumer(find, max_queues=20, connect_timeout_s=86_400) as consumer:
        await flow_of(peer, (stored_batch(b"1"), 1))
        assert (await take(consumer)).queue == "q0007"
        assert len(consumer.queues | consumer._opening.keys()) == 20
    (line,) = (each.message for each in caplog.records if "max_queues" in each.message)
    assert line.startswith(
        "1000 queues fit, above max_queues of 20; these are not consumed: q0020,"
    )
    assert len(line) < 300
    more = [ConnectionOptions(DEAD, f"q{number}") for number in range(1001)]
    with pytest.raises(SettingsError, match="find: returned more than 1000 queues; narrow the"):
        async with open_consumer(lambda: more, max_queues=1000):
            pass


async def test_a_thousand_queues_are_left_at_once():
    """Closing waits for no queue that is not there, however many these are."""
    names = [ConnectionOptions(DEAD, f"q{number}") for number in range(1000)]
    options = {"max_queues": 1000, "connect_timeout_s": 86_400, "find_every_s": 60}
    async with asyncio.timeout(WAIT_S):
        async with open_consumer(lambda: names, **options) as consumer:
            assert len(consumer._busy) == 1000
