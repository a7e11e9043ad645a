"""A port that was chosen is nobody else's until its server listens, and while it does."""

import asyncio
import socket
import subprocess
import sys
from contextlib import closing

import pytest

from partq.embedded.tcp_ports import HOST, HeldPorts

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port cannot be held")
OURS = range(9_000, 10_000)
"""No other test chooses from them."""
TAKE = """
import sys
from partq.embedded.tcp_ports import HeldPorts
ports = HeldPorts(range(int(sys.argv[1]), int(sys.argv[1]) + 1))
try:
    print(ports.take())
except OSError:
    print("none")
ports.close()
"""


@pytest.fixture
def port():
    """A port that nobody listens on or holds."""
    with closing(HeldPorts(OURS)) as ports:
        return ports.take()


def taken_elsewhere(port):
    """Let another process choose this port alone; return what it got."""
    command = [sys.executable, "-c", TAKE, str(port)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_none_is_given_twice(port):
    with closing(HeldPorts(range(port, port + 1))) as ports:
        assert ports.take() == port
        with pytest.raises(OSError, match=f"no port from {port} to {port + 1} is free"):
            ports.take()


@LINUX
def test_what_is_held_longest_is_let_go():
    with closing(HeldPorts(OURS, most=2)) as ports:
        first, second, third = (ports.take() for _ in range(3))
        assert taken_elsewhere(first) == str(first)
        assert [taken_elsewhere(each) for each in (second, third)] == ["none", "none"]


@LINUX
async def test_no_other_process_gets_it_and_its_server_listens(port):
    assert taken_elsewhere(port) == str(port)
    with closing(HeldPorts(range(port, port + 1))) as ports:
        ports.take()
        assert taken_elsewhere(port) == "none"
        for _ in "twice":  # as after a restart
            server = await asyncio.start_server(lambda *_: None, HOST, port)
            assert taken_elsewhere(port) == "none"
            server.close()
            await server.wait_closed()
        assert taken_elsewhere(port) == "none"
    assert taken_elsewhere(port) == str(port)


def test_neither_is_one_that_somebody_listens_on_nor_one_beside_it():
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        for among, beside in ((port, 0), (port - 1, 1)):
            ports = HeldPorts(range(among, among + 1))
            with closing(ports), pytest.raises(OSError, match="is free"):
                ports.take(beside=beside)


def test_a_port_that_is_named_is_left_out(port):
    ports = HeldPorts(range(port, port + 1))
    with closing(ports), pytest.raises(OSError, match="is free"):
        ports.take(but={port})
