"""A consumer process of a fault test: it writes each message down, then acknowledges it."""

import asyncio
import contextlib
import time
from pathlib import Path

from partq import Consumer
from partq.errors import FencedError
from partq.lab.verdict.journal import JournalWriter
from partq.lab.workload.consumer import MemberJournal

LOOK_S = 0.01


def begun(hold, number):
    """Return the file that says: the work which lasts by this hold has begun."""
    return hold.with_suffix(f".begun{number}")


def held(hold, partition):
    """Return the number of the hold on messages of a partition; None: there is none."""
    with contextlib.suppress(FileNotFoundError):
        name, number = hold.read_text().split()
        if name == str(partition):
            return int(number)
    return None


async def consume(url, token, name, journals, hold):
    """Consume until told to leave; work on a message of the partition named in `hold` lasts.

    The file holds a partition and a number, and appears as a whole.
    """
    hold = Path(hold)
    with JournalWriter(Path(journals), name) as journal:
        diary = MemberJournal(name, journal)
        async with Consumer(
            url,
            queue="orders",
            group="workers",
            token=token,
            member=name,
            on_assigned=diary.assigned,
            on_revoked=diary.revoked,
        ) as consumer:
            async for message in consumer:
                begun_ns = time.monotonic_ns()
                while (number := held(hold, message.partition)) is not None:
                    begun(hold, number).touch()
                    await asyncio.sleep(LOOK_S)
                diary.processed(message, begun_ns)
                consumer.ack_nowait(message)
            # What was refused comes again, with its cause.
            with contextlib.suppress(FencedError):
                await consumer.flush()
