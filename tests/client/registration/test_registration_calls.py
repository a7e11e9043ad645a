"""Calls of a member that chooses its partitions: which refusals they wait out, and for how long."""

import asyncio

import pytest
from aiohttp import web

from partq import ConflictError, FencedError, MemberInUseError, PartitionId, UnavailableError
from partq.client.registration.registration_calls import RegistrationCalls
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import Session

WAIT_S = 60.0
PLACE = PartitionId(1, 3)
FREE = {"is_free": True, "in_flight": 0, "epoch": 7}
NODE = {"source_count": 2, "node_id": 1}


class Script:
    """A broker that answers what it is told, the last of it again and again."""

    def __init__(self):
        self.answers = []
        self.asked = 0

    async def answer(self, request):
        self.asked += 1
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if isinstance(answer, dict):
            return web.json_response(answer)
        status, code, retry_after_ms = answer
        error = {"code": code, "message": "not now"}
        if retry_after_ms is not None:
            error["retry_after_ms"] = retry_after_ms
        return web.json_response({"error": error}, status=status)


@pytest.fixture
def script():
    return Script()


@pytest.fixture
async def calls(script):
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", script.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with Session(ConnectionOptions(url, "orders", token="t")) as session:
            async with asyncio.timeout(WAIT_S):
                yield RegistrationCalls(
                    session, lambda: [url], group="workers", member="m", incarnation="i"
                )
    finally:
        await runner.cleanup()


def unregister(calls, timeout_s=WAIT_S):
    return calls.unregister(PLACE, epoch=5, wait_s=0.0, is_forced=False, timeout_s=timeout_s)


async def test_what_gives_back_waits_out_what_ends_by_itself(calls, script):
    script.answers = [
        (409, "conflict", 10),  # a handoff is under way
        (409, "attempt_refused", None),  # its end came between
        (503, "unavailable", 10),  # the member has bound meanwhile
        FREE,
    ]
    assert (await unregister(calls)).is_free
    assert script.asked == 4


async def test_it_ends_and_says_what_was_in_the_way(calls, script):
    script.answers = [(409, "conflict", 10)]
    with pytest.raises(ConflictError, match="not now"):
        await unregister(calls, timeout_s=0.3)
    assert script.asked > 1
    script.answers = [(503, "unavailable", 10)]
    with pytest.raises(UnavailableError, match="repeat it"):
        await unregister(calls, timeout_s=0.3)


async def test_what_does_not_end_by_itself_is_raised_at_once(calls, script):
    script.answers = [(409, "fenced", None)]
    with pytest.raises(FencedError):
        await unregister(calls)
    script.answers = [(409, "conflict", 10)]
    with pytest.raises(ConflictError):  # what takes is not what gives back
        await calls.register(PLACE, epoch=5, offset=-1, timeout_s=WAIT_S)
    assert script.asked == 2


async def test_a_node_waits_until_its_earlier_process_is_lost(calls, script):
    script.answers = [(409, "member_in_use", 10), (409, "member_in_use", 10), NODE]
    assert (await calls.set_node(2, 1, WAIT_S)).node_id == 1
    script.answers = [(409, "member_in_use", 10)]
    with pytest.raises(MemberInUseError, match="not now"):
        await calls.set_node(2, 1, 0.3)
