import asyncio
import json
from copy import deepcopy

import pytest
from aiohttp import ClientSession, web

from partq.coordinator import broker_api
from partq.coordinator.broker_api import HttpBrokerAdmin
from partq.coordinator.state_reader import StateReader
from partq.core.group.handoff import Attempt, Commit, Pause
from partq.core.group.moves import Forced
from partq.core.model import BrokerEpoch, BrokerId, Epoch, MemberId, PartitionId
from partq.errors import InternalError, UnauthorizedError, UnavailableError

P = PartitionId(1, 3)
ATTEMPT = Attempt(
    number=4,
    broker=BrokerId("b-0"),
    broker_epoch=BrokerEpoch(7),
    source=MemberId("a"),
    epoch=Epoch(3),
    target=None,
)
STATE = {
    "broker": "b-0",
    "incarnation": "i",
    "partitions": {
        "1.3": {
            "broker_epoch": 7,
            "held_s": 1.5,
            "end": 10,
            "groups": {
                "g": {"member": "", "epoch": 3, "attempt": 2, "is_bound": False, "pause_attempt": 0}
            },
        }
    },
    "flows": [
        {
            "group": "g",
            "member": "m",
            "incarnation": "x",
            "address": "127.0.0.1",
            "is_leaving": True,
            "bound_s": 0.25,
        }
    ],
    "lost_flows": [{"group": "g", "member": "n", "incarnation": "y", "lost_s": 2.0}],
}


@pytest.fixture
async def broker():
    """A server that answers with what a test puts there, and remembers what it was asked."""

    class Served:
        answer = web.json_response(STATE)
        asked = None
        url = ""

    served = Served()

    async def handle(request):
        body = await request.json() if request.can_read_body else None
        served.asked = request.method, request.path, request.headers["Authorization"], body
        if isinstance(served.answer, asyncio.Event):
            await served.answer.wait()
        return served.answer

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    served.url = f"http://{host}:{port}"
    yield served
    await runner.cleanup()


@pytest.fixture
async def admin():
    async with ClientSession() as session:
        yield HttpBrokerAdmin(session, queue="orders", token="t-1")


async def test_a_state_is_read(broker, admin):
    state = await admin.state(broker.url)
    assert broker.asked[:3] == ("GET", "/admin/v1/queues/orders/state", "Bearer t-1")
    report = state.partitions[P]
    assert (report.broker_epoch, report.held_ms) == (7, 1_500)
    group = report.groups["g"]
    assert (group.member, group.epoch, group.closed_attempt, group.pause_attempt) == (
        None,
        3,
        2,
        None,
    )
    (flow,), (loss,) = state.flows, state.lost_flows
    assert (flow.member, flow.age_ms, flow.is_leaving) == ("m", 250, True)
    assert (loss.member, loss.age_ms, loss.is_leaving) == ("n", 2_000, False)


async def test_what_stops_publishes_and_deliveries_is_read(broker, admin):
    """A broker of an older version says nothing of it."""
    state = await admin.state(broker.url)
    assert (state.is_quota_used_up, state.partitions[P].groups["g"].blocked) == (False, "")
    told = deepcopy(STATE) | {"is_quota_used_up": True}
    told["partitions"]["1.3"]["groups"]["g"]["blocked"] = "x" * 1000
    broker.answer = web.json_response(told)
    state = await admin.state(broker.url)
    assert (state.is_quota_used_up, state.partitions[P].groups["g"].blocked) == (True, "x" * 500)


async def test_a_call_names_epochs_and_attempt(broker, admin):
    broker.answer = web.json_response({"results": [{"partition": "1.3", "is_drained": True}]})
    (answer,) = await admin.pause(broker.url, "g", {P: Pause(ATTEMPT, 3_000)}, lease_ms=3_000)
    assert (answer.partition, answer.code, answer.is_drained) == (P, "", True)
    assert broker.asked[3] == {
        "pauses": [
            {
                "partition": "1.3",
                "broker_epoch": 7,
                "epoch": 3,
                "attempt": 4,
                "lease_ms": 3_000,
                "drain_ms": 3_000,
            }
        ]
    }


async def test_a_commit_says_why_it_is_forced(broker, admin):
    error = {"code": "attempt_refused", "message": "too early"}
    broker.answer = web.json_response({"results": [{"partition": "1.3", "error": error}]})
    (answer,) = await admin.commit(broker.url, "g", {P: Commit(ATTEMPT, Forced.DRAIN_TIMEOUT)})
    assert (answer.code, answer.message) == ("attempt_refused", "too early")
    (commit,) = broker.asked[3]["commits"]
    assert (commit["source"], commit["target"], commit["cause"]) == ("a", "", "drain_timeout")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        pytest.param(web.Response(text="<html>"), InternalError, id="no JSON"),
        pytest.param(web.json_response({"broker": 1}), InternalError, id="no state"),
        pytest.param(web.json_response([]), InternalError, id="no object"),
        pytest.param(
            web.json_response({"error": {"code": "unauthorized", "message": "no"}}, status=401),
            UnauthorizedError,
            id="an error of ours",
        ),
        pytest.param(web.json_response([], status=502), InternalError, id="an error of others"),
        pytest.param(web.Response(text="[" * 50_000), InternalError, id="depth"),
        pytest.param(web.Response(text="[" * 50_000, status=502), InternalError, id="depth, 502"),
    ],
)
async def test_what_cannot_be_read_is_an_error_of_ours(broker, admin, answer, error):
    broker.answer = answer
    with pytest.raises(error):
        await admin.state(broker.url)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('"held_s": 1.5', '"held_s": Infinity'),
        ('"held_s": 1.5', '"held_s": 1e999'),
        ('"held_s": 1.5', '"held_s": 1e308'),
        ('"held_s": 1.5', '"held_s": 1' + "0" * 400),
        ('"broker_epoch": 7', '"broker_epoch": Infinity'),
        ('"broker_epoch": 7', '"broker_epoch": 1' + "0" * 400),
    ],
    ids=lambda text: text[:25],
)
async def test_numbers_that_no_broker_has(broker, admin, said, told):
    text = json.dumps(STATE)
    assert said in text
    broker.answer = web.Response(text=text.replace(said, told))
    assert await StateReader(admin).read({BrokerId("b-0"): broker.url}) == {}


async def test_nobody_is_sent_elsewhere(broker, admin):
    """The token is not for whoever is named there."""
    broker.answer = web.Response(status=307, headers={"Location": "/elsewhere"}, text="{}")
    with pytest.raises(InternalError):
        await admin.state(broker.url)
    assert broker.asked[1] == "/admin/v1/queues/orders/state"


async def test_every_call_has_a_time_out(broker, admin, monkeypatch):
    broker.answer = asyncio.Event()
    monkeypatch.setattr(broker_api, "CALL_TIMEOUT_S", 0.05)
    with pytest.raises(UnavailableError):
        await admin.state(broker.url)
    with pytest.raises(UnavailableError):
        await admin.state("http://127.0.0.1:9")


async def test_an_answer_has_a_bound(broker, admin, monkeypatch):
    monkeypatch.setattr(broker_api, "MAX_ANSWER_BYTES", 10)
    with pytest.raises(InternalError):
        await admin.state(broker.url)
