"""Consumers of sessions and brokers that are killed at random, and the judgement of what they did.

python -m tests.faults.session_storm --sessions 1000 --clients 20 --kill-clients 60
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from aiohttp import ClientError, ClientSession

from partq import Message, Producer, SessionConsumer
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker

LOCK_S = 5


class Verdict:
    """What the journals say of each session."""

    def __init__(self, rows, sessions, numbers):
        self.problems = []
        self.done = defaultdict(list)
        """Session → (number, lock) of each confirmed message, by time."""
        highest = {}
        self.has_all = True
        self.begun = self.repeats = 0
        for row in sorted(rows, key=lambda each: each["at"]):
            name, lock = row["session"], row["lock"]
            if row["what"] == "has" and lock <= highest.get(name, -1):
                self.problems.append(f"{name}: lock {lock} after {highest[name]}")
            elif row["what"] == "has":
                highest[name] = lock
            elif row["what"] == "begins":
                self.begun += 1
                if row["number"] != row["state"] + 1:
                    self.problems.append(f"{name}: message {row['number']}, state {row['state']}")
            elif row["what"] == "done":
                if lock != highest[name]:
                    self.problems.append(f"{name}: done under {lock} beside {highest[name]}")
                self.done[name].append(row["number"])
        for name in sessions:
            found = self.done[name]
            missing = set(range(1, numbers + 1)) - set(found)
            # An ack that was stored as its consumer was killed has no row.
            self.has_all = self.has_all and len(missing) < numbers
            if found != sorted(set(found)):
                self.problems.append(f"{name}: order {found}")
        self.unwritten = sum(numbers - len(set(self.done[name])) for name in sessions)


class Storm:
    """Processes that consume sessions, of which some are killed and replaced."""

    def __init__(self, local, directory, *, clients, seed=1):
        self.local = local
        self.directory = directory
        self.random = random.Random(seed)
        self.clients = clients
        self.processes = []
        self.names = 0
        self.killed = {"clients": 0, "brokers": 0}

    async def start_client(self):
        self.names += 1
        name = f"clerk-{self.names}"
        arguments = (self.local.url, self.local.tokens.consume, name)
        self.processes.append(
            await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.faults.session_clerk",
                *arguments,
                str(self.directory / f"{name}.jsonl"),
                stderr=asyncio.subprocess.DEVNULL,
            )
        )

    async def open(self):
        for _ in range(self.clients):
            await self.start_client()

    async def close(self):
        for process in self.processes:
            if process.returncode is None:
                process.kill()
        await asyncio.gather(*(process.wait() for process in self.processes))

    async def kill_client(self):
        process = self.random.choice(self.processes)
        process.kill()
        await process.wait()
        self.processes.remove(process)
        self.killed["clients"] += 1
        await self.start_client()

    async def kill_broker(self):
        broker = self.random.choice(self.local.runtime.brokers)
        await broker.kill()
        self.killed["brokers"] += 1
        await asyncio.sleep(0)
        await broker.start()

    def rows(self):
        found = []
        for path in self.directory.glob("*.jsonl"):
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    found.append(json.loads(line))
                except ValueError:
                    continue  # its writer was killed in the middle
        return found

    async def published(self, sessions, numbers):
        async with Producer(
            self.local.url, queue="orders", token=self.local.tokens.produce
        ) as producer:
            for number in numbers:
                messages = [Message(name, str(number).encode()) for name in sessions]
                await producer.send_many(messages)

    async def states(self, sessions):
        """Return the state of each session, which nobody has any more."""
        found = {}
        async with SessionConsumer(
            self.local.url, queue="orders", group="clerks", token=self.local.tokens.consume,
            member="judge", handle_signals=False,
        ) as judge:  # fmt: skip
            for name in sessions:
                async with await judge.accept(name, timeout_s=2 * LOCK_S) as session:
                    found[name] = int(await session.state() or b"0")
        return found

    async def is_drained(self):
        return await self.lag() == 0

    async def lag(self):
        """Return the lag of the group; None: no broker has said it now."""
        headers = {"Authorization": f"Bearer {self.local.tokens.admin}"}
        async with ClientSession(headers=headers) as http:
            for url in self.local.url.split(","):
                try:
                    async with http.get(f"{url}/v1/queues/orders/status") as answer:
                        found = await answer.json()
                except ClientError:
                    continue
                if not found.get("unavailable"):
                    return found.get("groups", {}).get("clerks", {}).get("lag")
        return None


def say(line):
    sys.stdout.write(f"{line}\n")


def open_queue(partitions, brokers):
    groups = {"clerks": {"type": "Session", "session": {"lockSeconds": LOCK_S}}}
    return LocalBroker(
        queue="orders", partitions=partitions, broker_count=brokers, groups=groups, lease_ttl_s=2
    )


async def main(sessions, numbers, clients, kill_clients, kill_brokers, gap_s, limit_s):
    """Run it, and print what was seen."""
    names = [f"session-{number}" for number in range(sessions)]
    with tempfile.TemporaryDirectory() as directory:
        async with open_queue(8, 3) as local:
            storm = Storm(local, Path(directory), clients=clients)
            await storm.open()
            publishing = asyncio.create_task(storm.published(names, range(1, numbers + 1)))
            try:
                async with asyncio.timeout(limit_s):
                    kills = ["client"] * kill_clients + ["broker"] * kill_brokers
                    storm.random.shuffle(kills)
                    for kill in kills:
                        await asyncio.sleep(gap_s)
                        await (storm.kill_client() if kill == "client" else storm.kill_broker())
                    await publishing
                    await eventually(storm.is_drained, "all is acknowledged", timeout_s=limit_s)
            except (TimeoutError, AssertionError):
                say(f"lag {await storm.lag()} after {limit_s} s")
            await storm.close()
            verdict = Verdict(storm.rows(), names, numbers)
            states = await storm.states(names)
    wrong = {name: state for name, state in states.items() if state != numbers}
    say(f"killed: {storm.killed}; messages begun: {verdict.begun}")
    say(f"stored without a row, as the consumer was killed: {verdict.unwritten}")
    say(f"sessions whose state is not {numbers}: {len(wrong)} {dict(list(wrong.items())[:5])}")
    say(f"problems: {len(verdict.problems)} {verdict.problems[:5]}")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--sessions", type=int, default=1000)
    options.add_argument("--numbers", type=int, default=5)
    options.add_argument("--clients", type=int, default=20)
    options.add_argument("--kill-clients", type=int, default=40)
    options.add_argument("--kill-brokers", type=int, default=4)
    options.add_argument("--gap-s", type=float, default=1.0)
    options.add_argument("--limit-s", type=float, default=180.0)
    given = options.parse_args()
    asyncio.run(
        main(
            given.sessions,
            given.numbers,
            given.clients,
            given.kill_clients,
            given.kill_brokers,
            given.gap_s,
            given.limit_s,
        )
    )
