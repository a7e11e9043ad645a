"""How a connection has ended is known to the other side, as a close frame tells it on a wire."""

import random

import pytest

from partq.lab.simulate.machine.loop import Process, SimLoop
from partq.lab.simulate.machine.network import Ending, Network
from partq.lab.simulate.processes.brokers import SimFrameSocket


class Listening:
    """A server that keeps the ends of its connections."""

    def __init__(self):
        self.ends = []

    async def accept(self, route, end):
        self.ends.append(end)


@pytest.mark.parametrize(
    ("ends", "ending", "was_cut"),
    [
        (lambda network, end: end.close(), Ending.CLOSED, False),
        (
            lambda network, end: network.disconnect(end.process, is_silent=False),
            Ending.RESET,
            True,
        ),
        (lambda network, end: network.disconnect(end.process, is_silent=True), None, True),
    ],
    ids=["closed", "killed", "vanished"],
)
def test_an_end_says_whether_a_living_process_has_closed(ends, ending, was_cut):
    loop = SimLoop()
    network = Network(loop, random.Random(1))
    server, client = Process(loop, "broker"), Process(loop, "pod")
    network.ports["broker"] = (server, listening := Listening())
    opened = client.start(network.open("broker", "/flow"))
    loop.run_until(1.0)
    (there,) = listening.ends
    socket = SimFrameSocket(there, watcher=None)
    assert socket.was_cut
    ends(network, opened.result())
    loop.run_until(2.0)
    assert (there.ending, socket.was_cut) == (ending, was_cut)
