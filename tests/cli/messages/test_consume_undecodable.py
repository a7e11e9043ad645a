"""`partq consume` meets a message that does not decode: it warns once, and continues."""

import asyncio
import os
import subprocess

from partq import Producer
from partq.testing.local_broker import LocalBroker
from tests.cli.processes import PARTQ
from tests.undecodable import KEY, publish_undecodable

TIMEOUT_S = 120.0


async def test_it_warns_once_and_goes_on():
    async with LocalBroker(partitions=1, lease_ttl_s=10.0) as broker:
        token = broker.tokens.produce
        await publish_undecodable(broker.url, "orders", token, count=1, partition_count=1)
        async with Producer(broker.url, queue="orders", token=token) as producer:
            await (await producer.send(b"behind", key=KEY))
        arguments = ("consume", "--count", "1", "--data-dir", str(broker.runtime.data_dir))
        done = await asyncio.to_thread(
            subprocess.run,
            [*PARTQ, *arguments],
            env={**os.environ}, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "behind\n"), done.stderr
    (warning,) = done.stderr.splitlines()
    assert warning.startswith("partq: WARNING: partition 1.0")
    assert "cannot be read from offset 0 to 0" in warning
