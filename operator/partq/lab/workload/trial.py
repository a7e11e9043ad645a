"""A short trial of a queue that is there: publish, consume, hand partitions over, compare.

    python -m partq.lab.workload.trial --url URL --queue QUEUE --group GROUP --member NAME

The queue and the group must have no other traffic. Two members, NAME/a and NAME/b, consume; the
second one joins between two halves of the messages. It ends with 0 when every message came and
every key was in order. The tokens are read from PARTQ_PRODUCE_TOKEN and PARTQ_CONSUME_TOKEN.
"""

import argparse
import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from typing import Final

from partq import Consumer, Producer
from partq.core.model import PartitionId
from partq.errors import PartqError
from partq.lab.workload.arguments import parser_of
from partq.logs import configure_logging

KEYS: Final = 16
PER_KEY: Final = 10
"""Messages of a key in each half."""


@dataclass(slots=True)
class Trial:
    """What has come so far."""

    received: dict[str, list[int]] = field(default_factory=dict)
    """By key: the numbers in the order in which they came, each once."""
    held: dict[str, set[PartitionId]] = field(default_factory=dict)
    """By member: the partitions that it was ever given."""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def is_in_order(self) -> bool:
        """Whether the numbers of each key came in their order."""
        return all(numbers == sorted(numbers) for numbers in self.received.values())

    @property
    def count(self) -> int:
        """Different messages that came."""
        return sum(map(len, self.received.values()))

    async def note(self, key: str, number: int) -> None:
        """Note a message; one that came before, because its ack was not in time, is not new."""
        numbers = self.received.setdefault(key, [])
        if number not in numbers:
            numbers.append(number)
        await self.wake()

    async def wake(self) -> None:
        """Let those that wait look again."""
        async with self.changed:
            self.changed.notify_all()

    async def until_count(self, count: int) -> None:
        """Wait until so many different messages came."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.count >= count)

    async def until_held(self, member: str) -> None:
        """Wait until a member was given a partition."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.held.get(member))


async def _consume(options: argparse.Namespace, member: str, trial: Trial) -> None:
    def assigned(partition: PartitionId) -> None:
        trial.held.setdefault(member, set()).add(partition)
        wakes.create_task(trial.wake())

    async with (
        asyncio.TaskGroup() as wakes,
        Consumer(
            options.url,
            queue=options.queue,
            group=options.group,
            token=os.environ["PARTQ_CONSUME_TOKEN"],
            member=member,
            on_assigned=assigned,
        ) as consumer,
    ):
        async for message in consumer:
            await trial.note(message.key or "", int(message.value))
            consumer.ack_nowait(message)


async def _publish(options: argparse.Namespace, first: int) -> None:
    async with Producer(
        options.url,
        queue=options.queue,
        token=os.environ["PARTQ_PRODUCE_TOKEN"],
        connect_timeout_s=options.timeout_s,  # the brokers may have to start
    ) as producer:
        for number in range(first, first + PER_KEY):
            for key in range(KEYS):
                await producer.send(str(number).encode(), key=f"key-{key}")
        await producer.flush()


async def _run(options: argparse.Namespace) -> Trial:
    trial = Trial()
    members = [f"{options.member}/{name}" for name in ("a", "b")]
    await _publish(options, 0)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(_consume(options, members[0], trial))]
        await trial.until_count(KEYS * PER_KEY)
        running.append(tasks.create_task(_consume(options, members[1], trial)))
        await trial.until_held(members[1])
        await _publish(options, PER_KEY)
        await trial.until_count(2 * KEYS * PER_KEY)
        for task in running:
            task.cancel()
    return trial


async def _bounded(options: argparse.Namespace) -> Trial:
    async with asyncio.timeout(options.timeout_s):
        return await _run(options)


def main() -> None:
    """Try the queue, and print what was found."""
    parser = parser_of(__doc__, "group", "member")
    parser.add_argument("--timeout-s", type=float, default=120.0)
    configure_logging("warning")
    try:
        trial = asyncio.run(_bounded(parser.parse_args()))
    except TimeoutError:
        sys.exit("the trial was not done in time")
    except PartqError as error:
        sys.exit(str(error))
    found = {
        "messages": trial.count,
        "in_order": trial.is_in_order,
        "partitions_given": {name: len(ids) for name, ids in sorted(trial.held.items())},
    }
    sys.stdout.write(f"{json.dumps(found)}\n")
    sys.exit(0 if trial.is_in_order else 1)


if __name__ == "__main__":
    main()
