"""Brokers of a test that own as many partitions each: none of them moves later."""

from collections import Counter

from aiohttp import ClientSession

from partq.testing import eventually


async def even_shares(queue):
    """Wait until the brokers of a `RunningQueue` own as many partitions each; return the owners.

    One that started late gets its share when no group is busy: in the middle of a test, in which
    nobody serves a partition for a moment.
    """
    url = f"{queue.url.split(',')[0]}/v1/queues/{queue.name}/layout"

    async def are_even():
        async with session.get(url) as response:
            layout = await response.json()
        owners, total = layout["owners"], sum(each["partitions"] for each in layout["generations"])
        counts = Counter(owners.values())
        if len(owners) < total or len(counts) < len(queue.brokers):
            return None
        return owners if max(counts.values()) - min(counts.values()) <= 1 else None

    headers = {"Authorization": f"Bearer {queue.tokens.produce}"}
    async with ClientSession(headers=headers) as session:
        return await eventually(are_even, "each broker owns its share")
