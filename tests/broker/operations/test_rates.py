"""What a broker says of the last ten minutes, and the sums over brokers."""

import asyncio
from types import SimpleNamespace
from urllib.parse import urlencode

import msgspec
import pytest

from partq.broker.api.app_keys import RATES
from partq.broker.operations import rates
from partq.core.samples.ring import KEPT_STEPS, MAX_RATED_GROUPS, STEP_S

QUEUE = "/v1/queues/orders"


@pytest.fixture(autouse=True)
def no_own_samples(monkeypatch):
    """The tests sample; the brokers do not, so that each count is in the sample it is meant for."""

    async def wait(_):
        await asyncio.Event().wait()

    monkeypatch.setattr(rates.RateSampler, "run", wait)


def last_step(running):
    """The newest step that an answer of now has."""
    return int((running.broker.clock() - rates.SAMPLE_S) / STEP_S)


async def sample(running, *, ago=0):
    """Sample at once, as the sample of a step in the past."""
    await running.app[RATES].sample(last_step(running) - ago)


async def read(running, peers, **kwargs):
    status, answer = await running.call("GET", f"{QUEUE}/rates", token=peers.CONSUME, **kwargs)
    assert status == 200, answer
    return answer


def sums(counts):
    return sum(each or 0 for each in counts)


async def publish(running, peers, count):
    for _ in range(count):
        status, _ = await running.call(
            "POST", f"{QUEUE}/messages", token=peers.PRODUCE, json={"key": "k", "value": "v"}
        )
        assert status == 201


async def test_published_delivered_lag_and_waits(running, peers):
    await sample(running, ago=3)
    await publish(running, peers, 3)
    await sample(running, ago=2)
    answer = await read(running, peers)
    group = answer["groups"]["workers"]
    assert (answer["step_ms"], len(answer["accepted"])) == (5000, KEPT_STEPS)
    assert sums(answer["accepted"]) == 3
    assert sum(answer["publish"]["counts"]) == 3
    publish_waits = answer["publish"]
    assert 0 < publish_waits["p50_ms"] <= publish_waits["p99_ms"]
    for name in ("p50_ms", "p99_ms"):
        steps = publish_waits[f"step_{name}"]
        assert len(steps) == KEPT_STEPS
        assert [each for each in steps if each is not None] == [publish_waits[name]]
    assert "step_counts" not in publish_waits, "only brokers get them"
    known = [each for each in group["lag"] if each is not None]
    assert known[-1] == 3
    assert [each for each in group["lag_ms"] if each is not None][-1] >= 0
    assert (sums(group["delivered"]), group["delivery"]["p50_ms"]) == (0, None)
    assert answer["unavailable"] == {}


async def test_a_delivery_is_counted_with_its_wait(running, peers):
    await running.assign("m", [0, 1, 2, 3])
    await sample(running, ago=3)
    await publish(running, peers, 2)
    body = {"member": "m", "incarnation": "i", "max_messages": 100, "wait_ms": 10_000}
    status, answer = await running.call(
        "POST", f"{QUEUE}/groups/workers/pull", token=peers.CONSUME, json=body
    )
    assert (status, len(answer["messages"])) == (200, 2)
    await sample(running, ago=2)
    group = (await read(running, peers))["groups"]["workers"]
    assert sums(group["delivered"]) == 2
    assert sum(group["delivery"]["counts"]) >= 1
    assert group["delivery"]["p99_ms"] >= 0.5


async def test_brokers_are_added_up_and_one_that_is_silent_is_named(running, peers, start_broker):
    other = await start_broker("orders-1")
    await running.admin("/yield", {"partitions": ["1.0"]})
    await other.admin("/claim", {"partitions": ["1.0"]})

    async def is_seen():
        return len((await running.call("GET", f"{QUEUE}/layout"))[1]["brokers"]) == 2

    await peers.eventually(is_seen, "both brokers are seen")
    for each in (running, other):
        await sample(each, ago=3)
        each.broker.metrics.accepted(5, 100)
        each.broker.append_waits.add(1.0, 5)
        await sample(each, ago=2)
    assert sums((await read(running, peers))["accepted"]) == 10
    assert sum((await read(other, peers))["publish"]["counts"]) == 10
    alone = await read(running, peers, headers={"Partq-Forwarded": "orders-1"})
    assert sums(alone["accepted"]) == 5
    await other.runner.cleanup()
    answer = await read(running, peers)
    assert sums(answer["accepted"]) == 5
    assert answer["unavailable"]["orders-1"]["code"] == "unavailable"


async def test_the_newest_step_waits_for_the_sample_of_each_broker(running, peers):
    for ago in (2, 1, 0):
        await sample(running, ago=ago)
        running.broker.metrics.accepted(5, 100)
    prompt = running.app[RATES].read()
    late = msgspec.structs.replace(prompt, accepted=[*prompt.accepted[:-1], None])
    joined = rates.add_rates([prompt, late], {})
    assert (prompt.accepted[-2:], joined.accepted[-2:]) == ([5, 5], [10, None])
    lag = joined.groups["workers"].lag
    assert (lag[-2], lag[-1]) == (0, None)
    silent = msgspec.structs.replace(prompt, accepted=[None] * KEPT_STEPS, groups={})
    assert rates.add_rates([prompt, silent], {}).accepted[-1] == 5, "it has begun with no sample"


async def test_what_was_delivered_before_the_last_partition_left_counts(running, peers):
    await sample(running, ago=3)
    running.broker.metrics.delivered("gone", "none", 7)
    await sample(running, ago=2)
    assert sums((await read(running, peers))["groups"]["gone"]["delivered"]) == 7


async def test_a_store_that_does_not_answer_leaves_the_age_unknown(running, peers, monkeypatch):
    await publish(running, peers, 1)

    async def fail(*_):
        raise rates.UnavailableError("away")

    monkeypatch.setattr(running.broker.log, "read_times", fail)
    await sample(running, ago=2)
    group = (await read(running, peers))["groups"]["workers"]
    assert (1, None) in zip(group["lag"], group["lag_ms"], strict=True)


async def test_groups_are_bounded(running, peers):
    waits = running.broker.delivery_waits
    await publish(running, peers, 1)
    (stored,) = [each.id for each in running.broker.owned.values() if each.stored_at is not None]
    for number in range(MAX_RATED_GROUPS + 10):
        waits.add(f"g{number}", stored, 1)
    assert len(waits.take()) == MAX_RATED_GROUPS
    assert waits.take() == {}


@pytest.mark.parametrize("role", ["PRODUCE", "CONSUME", "ADMIN"])
async def test_every_role_may_read_the_rates(running, peers, role):
    status, _ = await running.call("GET", f"{QUEUE}/rates", token=getattr(peers, role))
    assert status == 200


async def test_each_step_is_sampled_once(monkeypatch):
    """Also when a sleep ends a little early."""
    monkeypatch.undo()
    steps, now = [], [100.0]

    async def sleep_short(delay):
        now[0] += delay if delay < 0.1 else delay - 0.01

    async def note(step):
        steps.append(step)
        if len(steps) == 4:
            raise asyncio.CancelledError

    sampler = rates.RateSampler(SimpleNamespace(clock=lambda: now[0]))
    monkeypatch.setattr(sampler, "sample", note)
    monkeypatch.setattr(rates, "asyncio", SimpleNamespace(sleep=sleep_short))
    with pytest.raises(asyncio.CancelledError):
        await sampler.run()
    assert steps == [21, 22, 23, 24]


async def test_the_percentiles_of_a_step_are_those_of_all_brokers(running, peers):
    """One step with a slow broker and a fast one, and one in which nothing was stored."""
    await sample(running, ago=3)
    running.broker.append_waits.add(1.0, 3)
    await sample(running, ago=2)
    fast = running.app[RATES].read()
    (at,) = [at for at, span in enumerate(fast.publish.step_counts) if span]
    slow = msgspec.convert(msgspec.to_builtins(fast), type(fast))
    slow.publish.step_counts[at] = [8 * 9, 2]  # 256 ms
    joined = rates.add_rates([fast, slow], {}).publish
    assert (joined.step_p50_ms[at], joined.step_p99_ms[at]) == (1.0, 256.0)
    assert (joined.p50_ms, joined.p99_ms) == (1.0, 256.0)
    assert sum(each is not None for each in joined.step_p99_ms) == 1
    assert sum(joined.counts) == 5


async def test_one_group_can_be_asked_for(running, peers):
    await sample(running, ago=3)
    running.broker.metrics.delivered("other", "none", 7)
    await sample(running, ago=2)
    assert set((await read(running, peers))["groups"]) == {"other", "workers"}
    for group, found in (("other", {"other"}), ("n/a & more", set())):
        status, answer = await running.call(
            "GET", f"{QUEUE}/rates?{urlencode({'group': group})}", token=peers.CONSUME
        )
        assert (status, set(answer["groups"])) == (200, found)
