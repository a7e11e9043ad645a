"""When a client reads the layout again."""

import asyncio

from partq.client.transport import layout_watch
from partq.client.transport.layout_watch import LayoutWatch
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import Session
from partq.testing import eventually


async def test_who_asks_after_a_refresh_that_came_by_itself_does_not_wait(peer, monkeypatch):
    monkeypatch.setattr(layout_watch, "REFRESH_S", 0.05)
    monkeypatch.setattr(layout_watch, "HURRY_S", 3600.0)
    found = []
    async with Session(ConnectionOptions(peer.url, "orders", token="t")) as session:
        first = await session.layout(session.seeds)
        watch = LayoutWatch(session, first, found.append, found.append)
        try:
            await eventually(lambda: found, "the layout is read without being asked for")
            monkeypatch.setattr(layout_watch, "REFRESH_S", 3600.0)
            count = len(found)
            watch.hurry()
            await eventually(lambda: len(found) > count, "the layout is read when asked for")
            assert all(each.layout.partition_count == 2 for each in found)
        finally:
            await asyncio.wait_for(watch.close(), 10)
