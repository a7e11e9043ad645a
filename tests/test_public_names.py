"""Each public name is imported by itself: what a program does not use, it does not pay for."""

import subprocess
import sys

import pytest

import partq

WAIT_S = 60.0
EACH = """
import os
import aiohttp, msgspec  # once: they take most of the time
import partq

for name in partq.__all__:
    child = os.fork()
    if not child:
        getattr(partq, name)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise SystemExit(f"{name} cannot be the first one that is imported")
"""


def loaded(line):
    """Return which modules a fresh process has after a line."""
    program = f"import sys; {line}; print(*sys.modules)"
    command = [sys.executable, "-c", program]
    return set(
        subprocess.run(command, check=True, capture_output=True, timeout=WAIT_S)
        .stdout.decode()
        .split()
    )


def test_each_name_may_be_the_first():
    subprocess.run([sys.executable, "-c", EACH], check=True, timeout=WAIT_S)


@pytest.mark.parametrize(
    ("line", "absent"),
    [
        ("import partq", {"asyncio", "aiohttp", "msgspec", "partq.errors"}),
        ("from partq import FencedError, PartitionId", {"asyncio", "aiohttp", "msgspec"}),
        ("from partq import ConnectionOptions", {"aiohttp"}),
        ("from partq import Message", {"aiohttp"}),
        (
            "from partq import Consumer",
            {
                "partq.client.audit_reader",
                "partq.client.browser",
                "partq.client.producer",
                "partq.core.group.records",
            },
        ),
        ("from partq import Producer", {"partq.client.consumer", "partq.client.browser"}),
    ],
)
def test_a_name_brings_what_it_needs(line, absent):
    assert not loaded(line) & absent


def test_an_unknown_name_is_named():
    with pytest.raises(AttributeError, match="module 'partq' has no attribute 'Konsumer'"):
        partq.Konsumer  # noqa: B018 # reading it is the test
