"""A producer process of a fault test: it dies at a step of its move to new partitions.

Its steps are frames. What it has written down is confirmed; of the rest nobody knows.
"""

import asyncio
import os
from itertools import count
from pathlib import Path

from partq import Producer
from partq.client.produce.publish_connection import PublishConnection
from partq.lab.verdict.journal_rows import MESSAGE_NUMBER_HEADER
from partq.store.fail_point import EXIT_STATUS
from partq.wire import frames

GAP_S = 0.005
STEPS = ("refused", "cut", "answered")
"""The old partition has refused a batch; the first one to a new partition is about to be sent; the
answer to that one has come, and nobody knows it."""


class DyingConnection(PublishConnection):
    """Ends the process at a step."""

    step = ""

    def __init__(self, *args):
        super().__init__(*args)
        self._moved = set()

    def publish(self, request, partition_sender, batch):
        if partition_sender.partition.generation > 1:
            self._moved.add(request)
            die_at("cut")
        super().publish(request, partition_sender, batch)

    def received(self, frame, payload):
        if isinstance(frame, frames.PublishRefused) and frame.code == "stale_generation":
            die_at("refused")
        if isinstance(frame, frames.Published) and frame.request in self._moved:
            die_at("answered")
        super().received(frame, payload)


def die_at(step):
    if step == DyingConnection.step:
        os._exit(EXIT_STATUS)


async def produce(url, token, keys, confirmed, step):
    """Publish to keys in turn until the step, and write down what is confirmed."""
    from partq.client.produce import sender

    DyingConnection.step = step
    sender.PublishConnection = DyingConnection
    with Path(confirmed).open("a", buffering=1) as lines:  # noqa: ASYNC230 - it may wait

        def answered(answer, key, number):
            if answer.exception() is None:
                lines.write(f"{key} {number}\n")

        async with Producer(url, queue="orders", token=token) as producer:
            for number in count(1):
                for key in keys.split(","):
                    headers = {MESSAGE_NUMBER_HEADER: str(number)}
                    answer = await producer.send(b"x", key=key, headers=headers)
                    answer.add_done_callback(lambda a, at=(key, number): answered(a, *at))
                await asyncio.sleep(GAP_S)
