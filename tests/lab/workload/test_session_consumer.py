"""The consumer of sessions of the stories writes down what the verdict needs."""

import asyncio
from argparse import Namespace

from partq import Message, Producer, SessionConsumer
from partq.lab.verdict.journal_rows import (
    LOCKED,
    MESSAGE_NUMBER_HEADER,
    UNLOCKED,
    DeliveredRow,
    LockRow,
    StateRow,
)
from partq.lab.verdict.sessions import find_session_faults
from partq.lab.workload.consumer import MemberJournal
from partq.lab.workload.session_consumer import Clerk
from partq.testing import eventually
from partq.testing.local_broker import LocalBroker

OPTIONS = Namespace(messages=2, work_ms=0, work_while=None)


class Rows(list):
    """What the journal was told."""

    def write(self, *rows):
        self.extend(rows)

    def of(self, kind):
        return [row for row in self if isinstance(row, kind)]


async def test_locks_states_and_messages_of_each_session_are_written_down():
    async with LocalBroker(partitions=1, groups={"clerks": {"type": "Session"}}) as local:
        place = {"url": local.url, "queue": "orders"}
        async with Producer(**place, token=local.tokens.produce) as producer:
            for number in range(1, 4):
                headers = {MESSAGE_NUMBER_HEADER: str(number)}
                await producer.send_many([Message("k", b"", headers), Message("l", b"", headers)])
        rows = Rows()
        async with SessionConsumer(
            **place, group="clerks", token=local.tokens.consume, member="a", idle_s=60
        ) as consumer:
            clerk = Clerk(consumer, MemberJournal("a", rows), OPTIONS)
            both = asyncio.gather(clerk.run(), clerk.run())
            await eventually(lambda: len(rows.of(DeliveredRow)) == 6)
            consumer.leave()
            await both
    assert find_session_faults(rows) == []
    assert [(row.number, row.state) for row in rows.of(StateRow) if row.session == "k"] == [
        (1, 0),
        (2, 1),
        (3, 2),
    ]
    # After two messages a session is closed, and accepted again for the third one.
    changes = [row.change for row in rows.of(LockRow) if row.session == "k"]
    assert changes == [LOCKED, UNLOCKED] * 2
