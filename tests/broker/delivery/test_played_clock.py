"""How long a broker waits, exactly: its clock stands still but where a test moves it."""

import asyncio

import pytest

from partq.core.model import Cause
from partq.wire import frames
from tests.broker.delivery.test_nack import follow
from tests.broker.moved_clocks import StoodClock

DOUBLING = {"minSeconds": 1.0, "maxSeconds": 60.0, "multiplier": 2.0}
WAITS = [1, 2, 4, 8, 16, 32, 60, 60]
JUST_BEFORE_S = 0.5
WEEK_S = 7 * 86_400
WAIT_S = 60.0


@pytest.fixture
def clock():
    """Nothing is over by the time that the test takes."""
    return StoodClock()


@pytest.fixture
def lease_ttl_s():
    """Longer than any move: a broker without its lease would send nothing, and prove nothing."""
    return 4.0 * WEEK_S


async def move(scene, seconds):
    """Move the broker's clock; have it look for late acks, and its flow for what has waited."""
    scene.running.clock.ahead_s += seconds
    assert scene.running.broker.lease.is_valid
    scene.running.broker.ack_handler.time_out()
    await scene.source.send(frames.Credit(1))


async def comes_after(scene, seconds, cause):
    """See that the message is redelivered when this time is over, and not before; return it."""
    assert await scene.source.gets_nothing()
    await move(scene, seconds - JUST_BEFORE_S)
    assert await scene.source.gets_nothing()
    await move(scene, JUST_BEFORE_S)
    again, values = await scene.source.deliver()
    assert (again.start, values, again.cause) == (0, ["a", "b", "c"], cause)
    return again


@pytest.mark.req("PUL-23", "PUL-28")
async def test_a_nack_waits_for_a_minute_by_default(scene):
    assert await scene.source.nack(scene.held, [(0, 1)]) == ""
    await scene.source.expect(frames.Rewound)
    await comes_after(scene, 60, Cause.NACK)


@pytest.mark.req("PUL-23")
async def test_a_nack_waits_for_its_own_delay(scene):
    assert await scene.source.nack(scene.held, [(0, 1)], delay_ms=7_000) == ""
    await scene.source.expect(frames.Rewound)
    await comes_after(scene, 7, Cause.NACK)


@pytest.mark.req("PUL-29")
async def test_nacks_of_one_message_wait_longer_and_longer(scene):
    nack = {"order": "Ordered", "delaySeconds": 5.0, "backoff": DOUBLING}
    await follow(scene.running, "workers", nack=nack)
    held = scene.held
    for number, wait in enumerate(WAITS, 1):
        assert await scene.source.nack(held, [(0, 1)]) == ""
        await scene.source.expect(frames.Rewound)
        held = await comes_after(scene, wait, Cause.NACK)
        assert held.redeliveries == [(0, number)]


@pytest.mark.req("PUL-34")
async def test_ack_timeouts_of_one_message_wait_longer_and_longer(scene):
    """Ten seconds for the ack, and then the backoff."""
    ack = {"timeoutSeconds": 10.0, "tickSeconds": 0.5, "backoff": DOUBLING}
    await follow(scene.running, "workers", ack=ack)
    source, held = scene.source, scene.held
    for number, wait in enumerate(WAITS, 1):
        await source.begin(held)
        assert await source.gets_nothing()
        await move(scene, 10 - JUST_BEFORE_S)
        assert await source.gets_nothing()
        await move(scene, JUST_BEFORE_S)
        rewound, _ = await source.find(frames.Rewound)
        assert rewound.cause == Cause.ACK_TIMEOUT
        held = await comes_after(scene, wait, Cause.ACK_TIMEOUT)
        assert held.redeliveries[0] == (0, number)


@pytest.mark.req("PUL-33")
@pytest.mark.parametrize("tick", [4, 8])
async def test_a_late_ack_is_noticed_at_the_next_tick_and_not_before(scene, tick):
    """Ten seconds are over in the third tick, or in the second."""
    ack = {"timeoutSeconds": 10.0, "tickSeconds": float(tick), "backoff": None}
    await follow(scene.running, "workers", ack=ack)
    await scene.source.begin(scene.held)
    await move(scene, 0)
    noticed_after = next(at for at in range(0, 100, tick) if at >= 10)
    for _ in range(2 * noticed_after - 1):
        await move(scene, JUST_BEFORE_S)
        assert await scene.source.gets_nothing()
    await move(scene, JUST_BEFORE_S)
    rewound, _ = await scene.source.find(frames.Rewound)
    assert (rewound.start, rewound.cause) == (0, Cause.ACK_TIMEOUT)


@pytest.mark.req("PUL-27")
async def test_a_nack_after_the_ack_timeout_adds_nothing(scene):
    """It names a delivery that has been taken back: the message has failed once, and waits once."""
    ack = {"timeoutSeconds": 10.0, "tickSeconds": 0.5, "backoff": DOUBLING}
    await follow(scene.running, "workers", ack=ack)
    await scene.source.begin(scene.held)
    assert await scene.source.gets_nothing()
    await move(scene, 10)
    await scene.source.find(frames.Rewound)
    assert await scene.source.nack(scene.held, [(0, 1)], delay_ms=30_000) == ""
    again = await comes_after(scene, 1, Cause.ACK_TIMEOUT)
    assert again.redeliveries[0] == (0, 1)


async def test_the_time_of_what_is_in_progress_runs_anew(scene):
    """Ten seconds from the word, for that message alone; the others are late as before."""
    ack = {"timeoutSeconds": 10.0, "tickSeconds": 0.5, "backoff": None}
    await follow(scene.running, "workers", ack=ack)
    source, held = scene.source, scene.held
    await source.begin(held)
    assert await source.ack(held, ranges=[(1, 3)]) == ""
    for _ in range(4):
        await move(scene, 10 - JUST_BEFORE_S)
        assert await source.gets_nothing()
        assert await source.extend(held, [(0, 1)]) == ""
    await move(scene, 10 - JUST_BEFORE_S)
    assert await source.gets_nothing()
    await move(scene, JUST_BEFORE_S)
    rewound, _ = await source.find(frames.Rewound)
    assert (rewound.start, rewound.cause) == (0, Cause.ACK_TIMEOUT)
    assert await source.extend(held, [(0, 1)]) == "rewound", "it is taken back: too late"
    again, values = await source.deliver()
    assert (values, again.skip) == (["a"], [(1, 3)])


@pytest.mark.parametrize(("ranges", "changes", "code"), [
    ([(0, 3)], {"epoch": 1}, "fenced"),
    ([(0, 4)], {}, "not_delivered"),
    ([(0, 1)], {"delivery": 1}, "rewound"),
    ([], {}, "bad_request"),
    ([(0, 2**40)], {}, "bad_request"),
])  # fmt: skip
async def test_what_is_not_in_progress_is_refused_and_the_flow_goes_on(
    scene, ranges, changes, code
):
    ack = {"timeoutSeconds": 10.0, "tickSeconds": 0.5, "backoff": None}
    await follow(scene.running, "workers", ack=ack)
    await scene.source.begin(scene.held)
    assert await scene.source.gets_nothing()
    await move(scene, 10 - JUST_BEFORE_S)
    assert await scene.source.extend(scene.held, ranges, **changes) == code
    await move(scene, JUST_BEFORE_S)
    rewound, _ = await scene.source.find(frames.Rewound)
    assert rewound.start == 0, "no time was extended"


@pytest.mark.req("PUL-31")
async def test_without_a_timeout_an_application_has_all_the_time(scene):
    """By default nothing is taken back by time alone; the first ack still counts."""
    await scene.source.begin(scene.held)
    assert await scene.source.gets_nothing()
    await move(scene, WEEK_S)
    assert await scene.source.gets_nothing()
    assert await scene.source.extend(scene.held, [(0, 3)]) == "conflict", "begun 12 h ago"
    assert await scene.source.ack(scene.held, 3) == ""
    assert await scene.source.extend(scene.held, [(0, 3)]) == "", "done: there is nothing to do"


@pytest.mark.req("HND-12")
async def test_a_drain_waits_for_the_last_ack_and_no_longer(scene):
    """The time that it may wait for is never over here: only the ack ends it."""
    handoff = await scene.paused()
    draining = asyncio.create_task(handoff.drain())
    assert await scene.source.ack(scene.held, 2) == ""
    assert not (await handoff.drain(wait_ms=0))["is_drained"], "one is in flight"
    assert not draining.done()
    assert await scene.source.ack(scene.held, 3) == ""
    async with asyncio.timeout(WAIT_S):
        assert (await draining)["is_drained"]
    assert (await handoff.commit())["was_forced"] is False


@pytest.mark.req("HND-04")
async def test_partitions_that_do_not_move_wait_for_no_moment(scene, peers):
    """While one drains, those of its source and target get as much as before, at the same time."""
    running = scene.running
    target = await scene.target()
    await running.assign("m", [1])
    await running.assign("n", [2])
    flows = {1: scene.source, 2: target}

    async def rate():
        """Return how many messages are delivered in how many frames, while no time passes."""
        found = {}
        for partition, flow in flows.items():
            frames_of, values = 0, []
            await scene.producer.publish(*map(str, range(50)), partition=partition)
            while len(values) < 50:
                deliver, some = await flow.deliver()
                assert await flow.ack(deliver, deliver.stop) == ""
                frames_of, values = frames_of + 1, values + some
            found[partition] = (frames_of, values)
        return found

    before = await rate()
    await scene.paused()
    assert await rate() == before
    assert (await running.state(0))["in_flight"] == 3, "it has not drained, and nothing is over"
