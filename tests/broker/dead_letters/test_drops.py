"""Dropping dead letters does what its dry run says, and says what is left and why."""

import json

from partq.client.transport.session import Session
from partq.core.model import Offset
from partq.errors import UnavailableError
from partq.store.records.log import AppendBatch
from partq.wire import batch
from partq.wire.calls.dead_letters import DropResult
from tests.broker.conftest import ADMIN
from tests.broker.dead_letters import test_dead_letters
from tests.broker.dead_letters.test_dead_letters import TARGET, bury, run

resources = test_dead_letters.resources
start_target, target = test_dead_letters.start_target, test_dead_letters.target
PATH = f"/v1/queues/{TARGET}/dead-letters/drop"


async def drop(target, **body):
    """Return what a dry run promised, once the drop has done the same."""
    results = []
    for is_dry_run in (True, False):
        sent = {"partitions": ["1.0"], **body, "is_dry_run": is_dry_run}
        status, answer = await target.call("POST", PATH, json=sent, token=ADMIN)
        assert status == 200, answer
        results.append(answer["partitions"]["1.0"])
    assert results[0] == results[1]
    return results[0]


async def test_a_batch_is_dropped_as_a_whole_and_a_dry_run_says_so(running, target, peers):
    broker, partition = target.broker, peers.partition_id(0)
    data = batch.encode([batch.encode_message(batch.Message(None, b"x"))] * 10, [0] * 10)
    appended = await broker.log.append(
        partition,
        broker_epoch=broker.find(partition).broker_epoch,
        number=0,
        expected=Offset(0),
        batches=[AppendBatch("", 0, 10, data)],
        room_bytes=None,
    )
    assert appended.next == 10
    result = await drop(target, before=5)
    assert (result["start"], result["stop"]) == (0, 0)
    assert "messages 0 to 9 are stored as one batch" in result["stopped"]["message"]
    for arguments in ((), ("--yes",), ("--dry-run",)):
        said = await run(target, "drop", "--partition", "0", "--before", "5", *arguments)
        assert said.exit_code == 1, said.output
        assert "give --before 10" in said.stderr
    assert await drop(target, before=10) == {"start": 0, "stop": 10}


async def test_what_a_pin_keeps_is_not_promised(running, target):
    await bury(running, target, 3)
    pins = f"/v1/queues/{TARGET}/pins/reader"
    status, answer = await target.call("PUT", pins, json={"offsets": {"1.0": 1}}, token=ADMIN)
    assert status == 200, answer
    said = await run(target, "drop", "--yes", "--json")
    assert (said.exit_code, json.loads(said.stdout)["dropped"]) == (1, 1), said.output
    assert "a pin keeps what is stored from 1 on" in said.stderr
    result = await drop(target)
    assert (result["start"], result["stop"], result["stopped"]["code"]) == (1, 1, "conflict")
    await target.call("DELETE", pins, token=ADMIN)
    assert await drop(target) == {"start": 1, "stop": 3}


async def test_one_failed_call_does_not_hide_what_the_others_dropped(running, target, monkeypatch):
    await bury(running, target, 2)
    ask = Session.ask

    async def ask_late(self, method, path, kind, body=None):
        answer = await ask(self, method, path, kind, body)
        if path == "/dead-letters/drop" and body.is_dry_run:
            answer.partitions["1.1"] = DropResult(start=0, stop=1)
        if path == "/dead-letters/drop" and body.partitions == ["1.1"]:
            raise UnavailableError("the broker is gone")
        return answer

    monkeypatch.setattr(Session, "ask", ask_late)
    said = await run(target, "drop", "--yes", "--json")
    assert said.exit_code == 1, said.output
    answer = json.loads(said.stdout)
    assert (answer["dropped"], answer["partitions"]["1.0"]["stop"]) == (2, 2)
    assert "such as 1.1: the broker is gone" in said.stderr
