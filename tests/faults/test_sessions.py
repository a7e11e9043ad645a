"""Consumers of sessions that are killed, and a broker: nothing is lost, doubled or out of order."""

import asyncio

from partq.testing import eventually
from tests.faults.session_storm import Storm, Verdict, open_queue

SESSIONS = [f"session-{number}" for number in range(10)]
NUMBERS = 6


async def test_every_session_is_seen_whole_under_one_lock_at_a_time(tmp_path):
    async with open_queue(partitions=2, brokers=2) as local, asyncio.timeout(120):
        storm = Storm(local, tmp_path, clients=3)
        await storm.open()
        try:
            await storm.published(SESSIONS, range(1, 4))
            await eventually(lambda: len(storm.rows()) > 10, "work is under way")
            await storm.kill_client()
            await storm.kill_broker()
            more = asyncio.create_task(storm.published(SESSIONS, range(4, NUMBERS + 1)))
            await storm.kill_client()
            await more
            await eventually(storm.is_drained, "everything is acknowledged")
        finally:
            await storm.close()
        verdict = Verdict(storm.rows(), SESSIONS, NUMBERS)
        assert verdict.problems == []
        assert set((await storm.states(SESSIONS)).values()) == {NUMBERS}
