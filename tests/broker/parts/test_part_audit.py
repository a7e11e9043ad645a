"""The audit record of a partition that several members share, and what its judge finds."""

import asyncio

import pytest

from partq.core.model import Cause
from partq.pipeline.audit.judge.lines import RecordLine
from partq.pipeline.audit.judge.record import RecordJudge
from partq.testing import eventually
from tests.broker.conftest import Gate
from tests.broker.partition.test_audit import of_kind, resources, told
from tests.broker.parts.test_part_moves import DAY_MS, Shared
from tests.broker.parts.test_part_pulls import Puller, values
from tests.broker.parts.test_turn_shares import SharedScene

__all__ = ["resources"]


@pytest.fixture
async def scene(running):
    scene = await Shared.open(running)
    await scene.give(m=[0, 1], n=[2, 3])
    return scene


async def judged(running):
    """Return the records, once the judge has found nothing wrong with them."""
    records = await told(running)
    lines = [RecordLine(*(getattr(row, name) for name in RecordLine._fields)) for row in records]
    judge = RecordJudge("1.0", is_from_start=True)
    judge.judge(lines)
    judge.finish()
    assert judge.findings == []
    return records


def shown(records):
    return [(each.member, each.first, each.stop, each.target, each.cause) for each in records]


async def test_each_delivery_names_its_member_and_which_of_the_batch_it_has(scene):
    m, n = await scene.join("m"), await scene.join("n")
    await scene.publish("a0", "c0", "b0", "d0", "a1", "c1")
    to_m, _ = await m.deliver()
    to_n, _ = await n.deliver()
    assert await m.ack(to_m, ranges=[(0, 1), (2, 3), (4, 5)]) == ""
    assert await n.ack(to_n, ranges=[(1, 2)]) == ""
    records = await judged(scene.running)
    assert sorted(shown(of_kind(records, "deliver"))) == [
        ("m", 0, 5, "15", ""),
        ("n", 1, 6, "15", ""),
    ]
    assert {each.flags for each in of_kind(records, "deliver")} == {"shared"}
    binds = {each.member: each.epoch for each in of_kind(records, "bind")}
    assert binds == {"m": to_m.epoch, "n": to_n.epoch}
    assert {each.member for each in of_kind(records, "ack")} == {"m", "n"}


async def test_what_moves_is_taken_or_lost_with_its_member_is_on_record(scene):
    m, n = await scene.join("m"), await scene.join("n")
    await scene.publish("b0", "a0", "b1", "c0", "a1")
    await m.deliver()
    to_n, _ = await n.deliver()
    assert await n.nack(to_n, [(3, 4)], delay_ms=DAY_MS) == ""
    assert await scene.move((1, "m", "n"), drain_ms=0) == [""]
    await n.lanes()
    again, _ = await n.deliver()
    assert await n.ack(again, ranges=[(0, 1)]) == ""
    assert await n.values(1) == ["b1"]
    await m.close()
    await eventually(lambda: len(scene.consumed.holders()) == 1, "m is lost")
    assert await scene.move((0, "m", "n")) == [""]
    await n.values(1)
    records = await judged(scene.running)
    forced = [each for each in of_kind(records, "nack") if each.cause == "drain_timeout"]
    assert shown(forced) == [
        ("m", 0, 1, "", "drain_timeout"),
        ("m", 2, 3, "", "drain_timeout"),
    ]
    (lost,) = of_kind(records, "unbind")
    assert (lost.member, lost.cause) == ("m", "flow_lost")
    causes = {each.cause for each in of_kind(records, "deliver") if each.member == "n"}
    assert causes == {"", "forced_commit", "flow_lost"}


async def test_a_key_that_moves_while_its_answer_waits_for_the_record_is_given_back(scene):
    n = await scene.join("n")
    m = Puller(scene.running, "m")
    await m.pull(wait_ms=0)
    gate = Gate(scene.running.broker.audits, "write")
    await scene.publish("b0", "a0")
    answer = asyncio.create_task(m.pull())
    await gate.is_reached()
    move = asyncio.create_task(scene.move((1, "m", "n")))  # answered once it is on record, too
    await eventually(lambda: scene.consumed.parts.owner(1) == "n", "the part has moved")
    gate.opened.set()
    assert (values(await answer), await move) == (["a0"], [""])
    assert await n.values(1) == ["b0"]
    records = await judged(scene.running)
    assert [each[:3] for each in shown(of_kind(records, "release"))] == [("m", 0, 1)]


async def test_each_part_of_a_call_is_on_record_with_its_cause(scene):
    assert await scene.move((0, "m", "o", "source_lost"), (1, "m", "n")) == ["", ""]
    records = of_kind(await judged(scene.running), "commit_part")
    assert [(each.number, each.cause) for each in records[-2:]] == [(0, "source_lost"), (1, "")]


async def test_a_group_of_type_shared_is_recorded_as_such_and_judged(running):
    scene = await SharedScene.open(running)
    m, n = await scene.join("m"), await scene.join("n")
    await scene.publish("a0", "a1", "a2", "a3")
    to_m, _ = await m.deliver()
    to_n, _ = await n.deliver()
    assert await m.ack(to_m, ranges=[(to_m.start, to_m.start + 1)]) == ""
    assert await n.nack(to_n, [(to_n.start, to_n.start + 1)], delay_ms=DAY_MS) == ""
    await m.close()
    again, _ = await n.deliver()
    assert again.cause == Cause.FLOW_LOST
    records = await judged(running)
    for kind in ("bind", "deliver", "unbind"):
        assert {each.flags for each in of_kind(records, kind)} == {"turns"}
