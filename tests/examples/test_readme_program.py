"""The first program of README.md runs as it stands there, but for the address and the tokens."""

import asyncio
import signal
import sys

from partq.testing.local_broker import LocalBroker
from tests.examples.pages import programs

WAIT_S = 60.0


async def test_it_publishes_and_consumes_until_ctrl_c(tmp_path):
    (text,) = programs("README.md")
    async with LocalBroker(groups=["workers"]) as broker, asyncio.timeout(WAIT_S):
        for old, new in {
            '"http://127.0.0.1:7411"': repr(broker.url),
            '"token", "token"': f"{broker.tokens.produce!r}, {broker.tokens.consume!r}",
        }.items():
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "first.py").write_text(text, encoding="utf-8")
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(tmp_path / "first.py"), stdout=asyncio.subprocess.PIPE
        )
        lines = [(await process.stdout.readline()).decode().split() for _ in range(10)]
        process.send_signal(signal.SIGINT)
        rest, _ = await process.communicate()
    assert process.returncode == 0
    assert rest == b""
    for customer in range(3):
        orders = [int(number) for key, _, number in lines if key == f"customer-{customer}"]
        assert orders == list(range(customer, 10, 3))
