"""Broker asks broker: an answer, a refusal, or none that can be used."""

import pytest
from aiohttp import web

from partq.broker.peers.peer_client import PeerClient, UnansweredError
from partq.errors import UnavailableError
from partq.wire.calls.answers import DeadLetterAnswer

STORED = '{"is_stored_before": true, "offset": 3}'
REFUSED = '{"error": {"code": "unavailable", "message": "no longer mine"}}'


@pytest.fixture
async def peer():
    """A server in the place of another broker: its answers, what it was sent, its URL."""

    async def answer(request):
        sent.append((request.headers["Authorization"], await request.text()))
        return web.Response(**answers[0])

    answers, sent = [], []
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield answers, sent, f"http://127.0.0.1:{runner.addresses[0][1]}/"
    await runner.cleanup()


async def ask(url, **kwargs):
    async with PeerClient() as peers:
        return await peers.call(
            "POST", url, DeadLetterAnswer, authorization="Bearer t", timeout_s=5.0, **kwargs
        )


async def test_an_answer_comes_as_its_type(peer):
    answers, sent, url = peer
    answers.append({"text": STORED})
    assert (await ask(url, json={"a": 1})).is_stored_before
    assert sent == [("Bearer t", '{"a": 1}')]


async def test_a_redirect_takes_the_token_nowhere(peer):
    answers, sent, url = peer
    answers.append({"text": STORED, "headers": {"Location": url}, "status": 302})
    assert (await ask(url)).is_stored_before
    assert len(sent) == 1


async def test_a_refusal_says_where_it_comes_from(peer):
    answers, _, url = peer
    answers.append({"text": REFUSED, "status": 503})
    with pytest.raises(UnavailableError, match="queue dead: no longer mine"):
        await ask(url, where="queue dead: ")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"text": "<html>", "status": 502}, "status 502"),
        ({"text": '{"offset": 3}'}, "is_stored_before"),
        ({"text": f"{' ' * 1000}{STORED}"}, "more than 100 bytes"),
    ],
    ids=["no JSON", "a field is missing", "too long"],
)
async def test_what_is_no_answer_may_have_been_carried_out(peer, answer, reason):
    answers, _, url = peer
    answers.append(answer)
    with pytest.raises(UnansweredError, match=reason) as caught:
        await ask(url, limit_bytes=100)
    assert caught.value.is_sent


async def test_a_broker_that_is_not_there_was_sent_nothing(unused_tcp_port_factory):
    port = unused_tcp_port_factory()
    reason = rf"^cannot connect to 127\.0\.0\.1:{port}: Connect call failed [^:]*$"
    with pytest.raises(UnansweredError, match=reason) as caught:
        await ask(f"http://127.0.0.1:{port}/")
    assert not caught.value.is_sent
