"""A client-assigned group of a running queue, and processes that are its members."""

import asyncio
import sys
from contextlib import asynccontextmanager

import aiohttp

from partq.testing import eventually

PREFIX = "/v1/queues/orders/groups/workers"
CONSUME = """
import asyncio, sys
from partq import Consumer
async def consume(urls, token, member):
    async with Consumer(urls, queue="orders", group="workers", token=token, member=member) as found:
        async for delivery in found:
            await delivery.ack()
asyncio.run(consume(*sys.argv[1:]))
"""


class Group:
    """A client-assigned group of a running queue, and processes that are its members."""

    def __init__(self, runtime, http):
        self.queue = runtime.queue("orders")
        self.http = http

    async def call(self, method, path, *, role="consume", **kwargs):
        headers = {"Authorization": f"Bearer {getattr(self.queue.tokens, role)}"}

        async def answered():
            for broker in self.queue.brokers:
                try:
                    async with self.http.request(
                        method, broker.url + path, headers=headers, **kwargs
                    ) as response:
                        answer = await response.json()
                except aiohttp.ClientError:
                    continue  # it was killed
                if response.status < 500:
                    return answer
            return None

        return await eventually(answered, f"{method} {path} is answered")

    async def look(self):
        return (await self.call("GET", f"{PREFIX}/partitions"))["partitions"]

    async def holders(self):
        return {name: row["member"] for name, row in (await self.look()).items()}

    async def settled(self, holders):
        """Wait until every partition is at its holder, which is connected."""

        async def are_there():
            rows = await self.look()
            found = {name: row["member"] for name, row in rows.items()}
            states = {row["state"] for row in rows.values() if row["member"]}
            return rows if found == holders and states <= {"Ready"} else None

        return await eventually(are_there, f"{holders} are held and served")

    async def incarnation(self, member):
        async def bound():
            found = set()
            for broker in self.queue.brokers:
                headers = {"Authorization": f"Bearer {self.queue.tokens.admin}"}
                url = f"{broker.url}/admin/v1/queues/orders/state"
                async with self.http.get(url, headers=headers) as response:
                    flows = (await response.json())["flows"]
                mine = {each["incarnation"] for each in flows if each["member"] == member}
                if not mine:
                    return None
                found |= mine
            return found.pop() if len(found) == 1 else None

        return await eventually(bound, f"{member} is bound at every broker")

    async def register(self, member, *partitions):
        incarnation = await self.incarnation(member)
        for name in partitions:
            epoch = (await self.look())[name]["epoch"]
            body = {"incarnation": incarnation, "epoch": epoch}
            path = f"{PREFIX}/members/{member}/partitions/{name}"
            answer = await self.call("PUT", path, json=body)
            assert answer["member"] == member, answer

    @asynccontextmanager
    async def process_of(self, member):
        urls = ",".join(broker.url for broker in self.queue.brokers)
        args = (CONSUME, urls, self.queue.tokens.consume, member)
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", *args)
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
