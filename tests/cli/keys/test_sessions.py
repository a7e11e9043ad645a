"""`partq sessions`, beside a real queue: who has which, a release, a state."""

import asyncio
import json

import pytest
from aiohttp import ClientSession
from click.testing import CliRunner

from partq import Producer, SessionConsumer, SessionLostError
from partq.cli.commands import cli
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker

WAIT_S = 60.0
GROUPS = {"clerks": {"type": "Session"}, "thumbs": {"type": "Shared"}}


@pytest.fixture(scope="module")
def broker():
    with LocalBroker(partitions=2, groups=GROUPS) as broker:
        yield broker


@pytest.fixture
def partq(broker):
    """Run a command; return its exit status, and what it prints and complains of."""

    async def partq(*arguments):
        env = {
            "PARTQ_DATA_DIR": str(broker.runtime.data_dir),
            "PARTQ_GROUP": "clerks",
            "COLUMNS": "200",
        }
        result = await asyncio.to_thread(CliRunner().invoke, cli, arguments, env=env)
        return result.exit_code, result.stdout, result.stderr

    return partq


async def drain(session):
    """Take what is left of a session, until it ends."""
    async for _ in session:
        pass


async def test_sessions_are_listed_shown_and_released(broker, partq):
    assert (await partq("sessions", "list"))[:2] == (0, "0 sessions, 0 of them locked\n")
    async with Producer(broker.url, queue="orders", token=broker.tokens.produce) as producer:
        for key in ("ann", "bob", "ann"):
            await producer.send_and_wait(key.encode(), key=key)
    clerks = SessionConsumer(
        broker.url, queue="orders", group="clerks", token=broker.tokens.consume, member="m",
        handle_signals=False,
    )  # fmt: skip
    async with clerks, asyncio.timeout(WAIT_S):
        session = await clerks.accept("ann")
        message = await anext(session)
        await session.ack(message, state=b"1", confirmed=True)
        assert await partq("sessions", "state", "ann") == (0, "1", "")
        status, said, _ = await partq("sessions", "list")
        assert (status, said.splitlines()[-1]) == (0, "2 sessions, 1 of them locked")
        _, said, _ = await partq("sessions", "list", "--json")
        rows = [json.loads(line) for line in said.splitlines()]
        found = {row["session"]: row for row in rows}
        ann = found["ann"]
        assert (ann["holder"], ann["lock"], ann["is_connected"]) == ("m", session.lock, True)
        assert (ann["open_messages"], ann["state_bytes"]) == (1, 1)
        assert (found["bob"]["holder"], found["bob"]["open_messages"]) == (None, 1)
        assert "1 session, 1 of them locked" in (await partq("sessions", "list", "--locked"))[1]
        status, said, _ = await partq("sessions", "show", "ann")
        assert status == 0
        assert said.startswith(f"session ann, partition {session.partition}\nm has it, under lock ")
        assert "1 open message, the lowest at offset " in said
        assert said.endswith("a state of 1 byte\n")
        assert json.loads((await partq("sessions", "show", "bob", "--json"))[1])["holder"] is None

        told = "2 sessions have messages, 1 locked; 0 requests wait for one"
        assert told in (await partq("status"))[1]
        name = str(session.partition)

        async def ready():
            shown = json.loads((await partq("status", "--json"))[1])["groups"]["clerks"]
            row = shown["partitions"][name]
            return row if row["state"] == "Ready" else None

        row = await eventually(ready, "the coordinator says that a member is connected")
        assert (row["member"], row["sessions"]["locked"], row["problems"]) == ("", 1, [])
        shown = json.loads((await partq("status", "--json"))[1])["groups"]["clerks"]
        (member,) = shown["members"]
        assert (member["member"], member["sessions"], member["unacked"]) == ("m", 1, 1)
        shown = (await partq("status"))[1]
        assert "no member" not in shown[: shown.index("group thumbs")], "only thumbs has none"
        (member,) = json.loads((await partq("members", "--group", "clerks", "--json"))[1])[
            "members"
        ]
        assert (member["in_flight"], member["sessions"]) == (1, 1)
        async with ClientSession() as http, http.get(f"{broker.url}/metrics") as answer:
            text = await answer.text()
            lines = [line for line in text.splitlines() if "_sessions{" in line]
        assert 'partq_waiting_accepts{group="clerks"' in text
        locked = sum(float(line.split()[-1]) for line in lines if 'state="locked"' in line)
        assert (len(lines), locked) == (4, 1)
        _, said, _ = await partq("partitions")
        assert "group clerks: type Session: members lock the sessions of every partition" in said
        assert said.count(" any member ") == 2
        _, said, _ = await partq("explain", name, "--group", "clerks")
        assert "1 locked; 0 requests wait for one" in said
        explained = json.loads((await partq("explain", name, "--group", "clerks", "--json"))[1])
        assert explained["sessions"]["locked"] == 1

        assert await partq("sessions", "release", "ann") == (0, "session ann is released\n", "")
        with pytest.raises(SessionLostError):
            await drain(session)
        status, _, complaint = await partq("sessions", "release", "ann")
        assert status == 1
        assert "no member of group clerks has it" in complaint


async def test_what_is_not_there_has_exit_status_1(partq):
    for command, text in (("show", "neither messages nor a lock"), ("state", "has no state")):
        status, _, complaint = await partq("sessions", command, "nobody")
        assert status == 1
        assert text in complaint


@pytest.mark.parametrize("arguments", [("list",), ("show", "a"), ("release", "a"), ("state", "a")])
async def test_a_group_of_another_type_is_refused_with_its_type(partq, arguments):
    command, *more = arguments
    status, said, complaint = await partq("sessions", command, "--group", "thumbs", *more)
    assert (status, said) == (1, "")
    assert "group thumbs: got the type Shared, expected Session" in " ".join(complaint.split())


async def test_partitions_of_a_shared_group_are_assigned_to_nobody(partq):
    _, said, _ = await partq("partitions", "--group", "thumbs")
    told = "group thumbs: type Shared: any member gets the next message of every partition"
    assert told in said
    assert " any member " not in said.replace(told, ""), "none is connected"
    found = json.loads((await partq("partitions", "--group", "thumbs", "--json"))[1])
    assert found["type"] == "Shared"
    assert found["partitions"]["1.0"]["reason"].endswith("of this group: its type is Shared")
