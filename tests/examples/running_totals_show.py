"""Shows that sums which are kept in states of keys alone stay right, whatever dies.

    python -m tests.examples.running_totals_show --kills 1000 --minutes 25

Processes of `examples/running_totals.py` and brokers are killed (SIGKILL) under load, one after the
other, evenly over the time. Then every account has the sum of what was published to it: nothing is
missing, and nothing is counted twice. The exit status is 1 if one has not. A bounded version is
`tests/examples/test_running_totals.py`.
"""

import argparse
import asyncio
import logging
import multiprocessing
import os
import random
import runpy
import sys
import time
from collections import Counter
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path

import aiohttp

from partq import Producer
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker
from partq.wire.key_states import decode_state
from tests.forked_processes import fork_children

EXAMPLE = Path(__file__).parents[2] / "examples" / "running_totals.py"
ACCOUNTS = [f"account-{number}" for number in range(64)]
CONSUMERS = 6
BROKERS = 3
BROKER_SHARE = 0.2
"""Of the kills."""
SETTLE_S = 900.0
"""How long the last messages may take, after the last kill."""


def consume(url: str, token: str) -> None:
    """Run the example in this process until it is killed; what it prints is dropped."""
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    main = runpy.run_path(str(EXAMPLE))["main"]
    asyncio.run(main(url, token, "orders", "workers"))


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Show:
    """One run."""

    def __init__(self, local: LocalBroker, seed: int) -> None:
        self.local = local
        self.draw = random.Random(seed)
        self.processes = multiprocessing.get_context("forkserver")
        self.processes.set_forkserver_preload(["partq.client.consumer", "aiohttp"])
        self.consumers: list[BaseProcess] = []
        self.expected: Counter[str] = Counter()
        self.published = 0
        self.kills: Counter[str] = Counter()
        self.ended_themselves = 0
        self.too_high: list[str] = []

    def start_consumer(self) -> None:
        """Start one more."""
        given = (self.local.queue.url, self.local.tokens.consume)
        process = self.processes.Process(target=consume, args=given, daemon=True)
        process.start()
        self.consumers.append(process)

    async def publish(self, rate: float, seconds: float) -> None:
        """Publish numbers to accounts at a rate, and add up what each has got."""
        async with Producer(
            self.local.url, queue="orders", token=self.local.tokens.produce,
            delivery_timeout_s=300.0,
        ) as producer:  # fmt: skip
            began = time.monotonic()
            for each in range(round(rate * seconds)):
                await asyncio.sleep(max(0.0, began + each / rate - time.monotonic()))
                account, number = self.draw.choice(ACCOUNTS), self.draw.randint(1, 1000)
                self.expected[account] += number  # a failed one ends the run
                self.published += 1
                await producer.send(str(number).encode(), key=account)
            await producer.flush()

    async def kill(self, count: int, seconds: float) -> None:
        """Kill so many processes, one after the other."""
        began = time.monotonic()
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number * seconds / count - time.monotonic()))
            brokers = [each for each in self.local.queue.brokers if each.pid is not None]
            if brokers and self.draw.random() < BROKER_SHARE:
                await self.draw.choice(brokers).kill()
                self.kills["brokers"] += 1
            else:
                victim = self.draw.choice(self.consumers)
                self.ended_themselves += not victim.is_alive()
                victim.kill()
                await asyncio.to_thread(victim.join)
                self.consumers.remove(victim)
                self.start_consumer()
                self.kills["consumers"] += 1
            if number % 50 == 49:
                right, wrong = await self.compare()
                say(
                    f"{time.monotonic() - began:6.0f} s: {number + 1} kills, {self.published} "
                    f"published, {right} sums up to date, {wrong} behind"
                )

    async def compare(self) -> tuple[int, int]:
        """Return how many sums are all that was published, and how many are not, or unknown.

        One that is above is wrong for good, and noted.
        """
        sums = await self.read()
        for account, found in sums.items():
            if found > self.expected[account]:
                self.too_high.append(f"{account}: {found}, published {self.expected[account]}")
        right = sum(sums.get(each) == self.expected[each] for each in ACCOUNTS)
        return right, len(ACCOUNTS) - right

    async def read(self) -> dict[str, int]:
        """Return the sums that brokers tell now."""
        headers = {"Authorization": f"Bearer {self.local.tokens.admin}"}
        timeout = aiohttp.ClientTimeout(total=10)
        found: dict[str, int] = {}
        async with aiohttp.ClientSession(headers=headers, timeout=timeout) as http:
            for account in ACCOUNTS:
                for broker in self.local.queue.brokers:
                    path = f"/v1/queues/orders/groups/workers/state?key={account}"
                    try:
                        async with http.get(broker.url + path) as response:
                            if response.ok:
                                state = (await response.json())["state"]
                                found[account] = int(decode_state(state or "MA=="))
                                break
                    except (aiohttp.ClientError, TimeoutError):
                        continue
        return found


async def run(kills: int, minutes: float, rate: float, seed: int) -> int:
    """Run it, print the figures, and return the exit status."""
    groups = {"workers": {"nack": {"order": "Key", "delaySeconds": 1}}}
    spec = {"rebalance": {"maxHandoffSeconds": 5, "delaySeconds": 0}}
    async with LocalBroker(
        partitions=8, broker_count=BROKERS, groups=groups, spec=spec, lease_ttl_s=5.0
    ) as local:
        show = Show(local, seed)
        for _ in range(CONSUMERS):
            show.start_consumer()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(show.publish(rate, minutes * 60))
                tasks.create_task(show.kill(kills, minutes * 60))

            async def are_right() -> bool:
                return not (await show.compare())[1]

            with suppress(AssertionError):
                await eventually(are_right, "all sums are right", timeout_s=SETTLE_S, interval_s=1)
            _, behind = await show.compare()
        finally:
            for each in show.consumers:
                each.kill()
    is_right = not behind and not show.too_high
    say(
        f"seed {seed}: {sum(show.kills.values())} kills ({show.kills['consumers']} of consumers, "
        f"{show.kills['brokers']} of brokers) in {minutes:g} minutes, {show.published} messages of "
        f"{len(ACCOUNTS)} accounts; {len(ACCOUNTS) - behind} sums are right, {behind} are not, "
        f"{len(show.too_high)} were ever too high {show.too_high[:3] or ''}; "
        f"{show.ended_themselves} consumers had ended by themselves"
    )
    return 0 if is_right else 1


def main() -> None:
    """Read the command line."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--kills", type=int, default=1000)
    arguments.add_argument("--minutes", type=float, default=25.0)
    arguments.add_argument("--rate", type=float, default=40.0, help="messages per second")
    arguments.add_argument("--seed", type=int, default=random.randrange(2**31))
    given = arguments.parse_args()
    logging.getLogger("partq").setLevel(logging.ERROR)  # each kill is a warning
    fork_children()
    sys.exit(asyncio.run(run(given.kills, given.minutes, given.rate, given.seed)))


if __name__ == "__main__":
    main()
