"""A consumer process of a group of the type Session: the state counts messages of each session.

    python -m partq.lab.workload.session_consumer --journal DIR --member c-1 ...

It has several sessions at a time, and closes each after a number of messages, or when none comes.
It writes down locks, the state that it finds at each message, and the message, before the ack that
leaves the message's number as the state. While it is held (--work-while), acks wait. SIGTERM makes
it leave the group; it ends with 0 then. The token is read from PARTQ_TOKEN.
"""

import argparse
import asyncio
import os
import time
from contextlib import suppress
from typing import Final

from partq import Delivery, LockedSession, SessionConsumer
from partq.errors import FencedError, PartqError, SessionLostError
from partq.lab.verdict import journal_rows
from partq.lab.verdict.journal import JournalWriter
from partq.lab.workload.consumer import MemberJournal, consumer_parser, until_let_go, work_on
from partq.logs import configure_logging

AGAIN_S: Final = 0.2
"""How long a consumer waits that no broker could give a session."""


class Clerk:
    """Works on sessions, one after another."""

    def __init__(
        self, consumer: SessionConsumer, diary: MemberJournal, options: argparse.Namespace
    ) -> None:
        self._consumer = consumer
        self._diary = diary
        self._options = options

    async def run(self) -> None:
        """Accept sessions until the consumer leaves.

        Raises:
            PartqError: what stops the consumer.
        """
        while True:
            try:
                session = await anext(self._consumer)
            except StopAsyncIteration:
                return
            except PartqError as error:
                if not error.is_retryable:
                    raise
                await asyncio.sleep(AGAIN_S)
                continue
            with suppress(SessionLostError, FencedError):
                async with session:
                    self._diary.session(session, journal_rows.LOCKED)
                    await self._serve(session)
                    if not session.is_lost:
                        self._diary.session(session, journal_rows.UNLOCKED)

    async def _serve(self, session: LockedSession) -> None:
        for _ in range(self._options.messages):
            message = await session.receive()
            if message is None:
                return
            # What was handed out before the connection was lost is redelivered.
            with suppress(FencedError):
                await self._process(session, message)

    async def _process(self, session: LockedSession, message: Delivery) -> None:
        begun_ns = time.monotonic_ns()
        state = int(await session.state() or b"0")
        number = self._diary.found(message, state)
        await work_on(self._options)
        self._diary.processed(message, begun_ns)
        await until_let_go(self._options)
        await session.ack(message, state=str(number).encode(), confirmed=True)


async def _run(options: argparse.Namespace) -> None:
    with JournalWriter(options.journal, options.member.replace("/", ".")) as journal:
        diary = MemberJournal(options.member, journal)
        async with SessionConsumer(
            options.url,
            queue=options.queue,
            group=options.group,
            token=os.environ["PARTQ_TOKEN"],
            member=options.member,
            idle_s=options.idle_s,
        ) as consumer:
            diary.joined()
            clerk = Clerk(consumer, diary, options)
            async with asyncio.TaskGroup() as tasks:
                for _ in range(options.sessions):
                    tasks.create_task(clerk.run())


def main() -> None:
    """Consume until told to leave."""
    parser = consumer_parser(__doc__)
    parser.add_argument("--sessions", type=int, default=4, help="how many at a time")
    parser.add_argument("--messages", type=int, default=5, help="how many of a session at most")
    parser.add_argument("--idle-s", type=float, default=0.5)
    configure_logging("info")
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
