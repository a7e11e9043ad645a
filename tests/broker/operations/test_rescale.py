"""Changing the number of partitions over HTTP: shown first, recorded once, refused where it is
Kubernetes that says it."""

from dataclasses import replace

import pytest

from partq.broker.api.routes.administration import partition_count
from partq.broker.operations.rescale import change_to, hold_ms, remarks
from partq.core.layout import Layout
from partq.core.rescale.layout_steps import prepare
from partq.errors import StoreUnavailableError
from partq.wire.calls.status import GroupRates, RatesAnswer, Waits

PATH = "/admin/v1/queues/orders/partitions"


@pytest.fixture
def rescale(running):
    async def rescale(body):
        return await running.call("POST", PATH, json=body)

    return rescale


async def test_a_plan_shows_what_would_happen_and_changes_nothing(running, rescale):
    status, plan = await rescale({"partitions": 6, "is_dry_run": True})
    assert status == 200
    assert (plan["from_count"], plan["to_count"], plan["generation"]) == (4, 6, 2)
    assert (plan["moved_percent"], plan["most_predecessors"]) == (33.3, 2)
    assert (plan["created"], plan["retired"]) == (["2.4", "2.5"], [])
    assert plan["groups"]["workers"] == {
        "in_flight": 0, "lag": 0, "hold_ms": 0, "moved": 0, "assigned": 0, "members": {},
    }  # fmt: skip
    assert (plan["is_wanted"], plan["remarks"]) == (False, [])
    assert plan["waits_for"] == []
    assert "rescale" not in plan, "nobody wants another number"
    assert "command" not in plan
    assert (await running.broker.configs.read_queue()).spec["partitions"] == 4


async def test_what_a_group_has_to_finish_first_and_its_members_then(running, peers, rescale):
    producer = await peers.open_producer(running)
    for number in range(4):
        await producer.publish("v", partition=number)
    await peers.open_flow(running, "m")
    await running.assign("m", [0, 1, 2])
    _, plan = await rescale({"partitions": 3, "is_dry_run": True})
    assert (plan["created"], plan["retired"]) == (
        ["2.0", "2.1", "2.2"],
        ["1.0", "1.1", "1.2", "1.3"],
    )
    group = plan["groups"]["workers"]
    assert (group["lag"], group["hold_ms"]) == (4, None)
    assert group["members"] == {"m": {"before": 3, "after": 3}}
    assert (group["moved"], group["assigned"]) == (0, 0)
    assert plan["remarks"][0].startswith("all 3 partitions that get keys of others are replaced")


async def test_the_number_is_recorded_once_and_a_repeat_changes_nothing(running, rescale):
    for _ in range(2):
        status, plan = await rescale({"partitions": 6})
        assert (status, plan["is_wanted"], plan["rescale"]["phase"]) == (200, True, "Preparing")
        assert plan["rescale"]["waits_for"] == ["the coordinator, which begins it"]
        config = await running.broker.configs.read_queue()
        assert config.spec["partitions"] == 6
    assert config.resource_generation == 2
    _, plan = await rescale({"partitions": 4, "is_dry_run": True})
    assert (plan["created"], plan["moved_percent"], plan["is_wanted"]) == ([], 0.0, False)
    assert plan["remarks"] == ["the change to 6 partitions, which has not begun, is taken back"]
    assert (plan["rescale"]["to_count"], plan["waits_for"]) == (6, [])


async def test_the_number_is_recorded_before_other_brokers_are_asked(running, rescale, monkeypatch):
    async def fail(call):
        raise StoreUnavailableError("no answer")

    monkeypatch.setattr(partition_count, "ask_states", fail)
    status, _ = await rescale({"partitions": 6})
    assert status == 503
    assert (await running.broker.configs.read_queue()).spec["partitions"] == 6


async def test_a_change_that_is_prepared_is_taken_back_for_another_one(running, rescale):
    broker = running.broker
    await broker.layouts.write(prepare((await broker.layouts.read()).layout, 6))
    _, plan = await rescale({"partitions": 8, "is_dry_run": True})
    assert plan["generation"] == 3
    assert plan["remarks"] == [
        "change 2 to 6 partitions, which is being prepared, is taken back first"
    ]
    _, plan = await rescale({"partitions": 6, "is_dry_run": True})
    assert (plan["generation"], plan["created"], plan["remarks"]) == (2, ["2.4", "2.5"], [])


def test_a_change_that_may_have_been_in_force_is_not_taken_back():
    layout = replace(prepare(Layout.first(4), 6), must_commit=True)
    assert next(remarks(layout, change_to(layout, 8)[0], 8)) == (
        "change 2 to 6 partitions, which may have been in force and was lost, is completed first"
    )


def test_one_new_partition_with_keys_of_many_others_is_advised_against():
    layout = Layout.first(16)
    change, _ = change_to(layout, 17)
    assert list(remarks(layout, change, 17)) == [
        "a new partition has its keys from 16 others, and waits for the slowest; a suggestion: 32 "
        "partitions would wait for 1 predecessor each, instead of 16"
    ]
    change, _ = change_to(layout, 24)
    assert list(remarks(layout, change, 24)) == []


async def test_on_kubernetes_it_is_the_resource_that_says_the_number(running, rescale):
    broker = running.broker
    config = await broker.configs.read_queue()
    spec = {**config.spec, "uid": "0f3a9c1e-0000"}
    await broker.configs.write_queue(spec, resource_generation=config.resource_generation + 1)
    command = (
        "kubectl -n default patch partitionedqueue orders --type merge "
        """-p '{"spec": {"partitions": 6}}'"""
    )
    _, plan = await rescale({"partitions": 6, "is_dry_run": True})
    assert plan["command"] == command
    status, answer = await rescale({"partitions": 6})
    assert (status, answer["error"]["code"]) == (409, "conflict")
    assert command in answer["error"]["message"]
    assert (await broker.configs.read_queue()).spec["partitions"] == 4
    assert (await rescale({"partitions": 4}))[0] == 200


async def test_what_retention_keeps_is_lost_and_the_plan_says_so(running, rescale, monkeypatch):
    broker = running.broker
    monkeypatch.setattr(broker, "_config", replace(broker.config, retention_s=86_400.0))
    for partition in broker.config.layout.partitions():
        meta = broker.keys.meta(partition)
        await broker.store.read("HSET", meta, "total_bytes", 900, "retained_bytes", 700)
    _, plan = await rescale({"partitions": 6, "is_dry_run": True})
    assert plan["remarks"] == [
        "retentionSeconds keeps nothing across the change in the 4 partitions that lose keys: "
        "messages that all groups have acknowledged are removed there, 2,800 bytes so far, and "
        "`partq reset` does not bring them back; copy before what is still needed"
    ]
    _, plan = await rescale({"partitions": 4, "is_dry_run": True})
    assert plan["remarks"] == [], "nothing changes"


@pytest.mark.parametrize("partitions", [0, 4097, "six", None])
async def test_a_wrong_number_is_refused(rescale, partitions):
    status, answer = await rescale({"partitions": partitions})
    assert (status, answer["error"]["code"]) == (400, "bad_json")
    assert "partitions" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("accepted", "lags", "hold"),
    [
        pytest.param([0, 1000, 0, 0], [0, 900, 800, 700], 20_000, id="100 in each step"),
        pytest.param([0, 0, 300, 0], [500, 400, 400, 400], 10_000, id="idle: 400 in two steps"),
        pytest.param([0, 100, 100], [50, 0, 150], 20_000, id="counted a moment too early"),
        pytest.param([None, 9, 9], [None, None, 9], None, id="not known"),
        pytest.param([5, 5, 5], [5, 10, 15], None, id="nothing was acknowledged"),
        pytest.param([], [], None, id="a new queue"),
    ],
)
def test_how_long_a_lag_takes_goes_by_what_was_acknowledged(accepted, lags, hold):
    delivered = [1_000_000] * len(accepted)  # ahead of the work
    groups = {"workers": GroupRates(delivered, lags, [], Waits())}
    rates = RatesAnswer("orders", "default", 5000, accepted, Waits(), groups)
    assert hold_ms(400, rates, "workers") == hold
    assert hold_ms(0, rates, "workers") == 0
    assert hold_ms(1, rates, "other") is None
