"""Examples as processes, as a reader starts them."""

import asyncio
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
WAIT_S = 60.0


async def start(name, *arguments):
    """Start an example in Python."""
    return await run(sys.executable, str(EXAMPLES / name), *arguments)


async def run(*command, env=None):
    """Start a command whose errors go where its output goes."""
    return await asyncio.create_subprocess_exec(
        *command, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )


async def output(process, *, status=0):
    """Wait until it ends so; return the lines that it has printed since they were read last."""
    async with asyncio.timeout(WAIT_S):
        text, _ = await process.communicate()
    assert process.returncode == status, text.decode()
    return text.decode().splitlines()
