"""Signs of life while the event loop stands still, to a broker that does not answer."""

import socket
import threading
from queue import Queue
from types import SimpleNamespace

import pytest

from partq.client.consume.process import heartbeat
from partq.client.consume.process.heartbeat import Heartbeat
from partq.client.transport import session as session_module
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import Session

WAIT_S = 60.0


@pytest.fixture
def silent():
    """A broker that takes calls and answers none, in a thread of its own.

    `calls` holds the first line of each.
    """
    calls, connections = Queue(), []

    def serve():
        while True:
            try:
                connections.append(listening.accept()[0])
            except OSError:
                return
            calls.put(connections[-1].recv(65536).partition(b"\r\n")[0])

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        port = listening.getsockname()[1]
        yield SimpleNamespace(url=f"http://127.0.0.1:{port}", calls=calls)
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connection in connections:
        connection.close()


class BoundFlow:
    """What a heartbeat asks of a flow."""

    number = 7
    alive_path = "/groups/workers/members/m/alive"
    connection = SimpleNamespace(is_up=True)

    def __init__(self, url):
        self.url = url


async def test_a_call_without_an_answer_is_followed_by_the_next(silent, monkeypatch):
    """The broker gives a flow up after 3 s without a sign; the first call may be lost."""
    monkeypatch.setattr(heartbeat, "ANSWER_S", 0.05)
    monkeypatch.setattr(session_module, "CALL_TIMEOUT_S", 10 * WAIT_S)
    session = Session(ConnectionOptions(silent.url, "orders", token="t"))
    flow = BoundFlow(silent.url)
    beating = Heartbeat(session, lambda: [flow], incarnation="i", max_processing_s=10 * WAIT_S)
    try:
        for _ in range(2):  # here the event loop stands still
            line = silent.calls.get(timeout=WAIT_S)
            assert line == f"POST /v1/queues/orders{flow.alive_path} HTTP/1.1".encode()
    finally:
        await beating.close()
