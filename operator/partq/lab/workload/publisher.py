"""A producer process: publishes known events and writes down which ones are stored.

    python -m partq.lab.workload.publisher --journal DIR --name p-1 ... --input FILE
    python -m partq.lab.workload.publisher --journal DIR --name p-1 ... --messages 1000 ...

Its name is its producer id: if it is started again with the same arguments after a kill -9, it
leaves out what is stored, and continues behind that, also after changes of the partition count.
With --drawn-id it is an ordinary producer, whose id is drawn at each start: one that is started
again publishes everything once more. It ends with 0 once all is stored. SIGTERM makes it begin no
further message, and end when what it has begun is stored. SIGUSR1 releases it from the next one of
its --holds. The token is read from PARTQ_TOKEN.
"""

import argparse
import asyncio
import os
import signal
import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import takewhile
from pathlib import Path

from partq import Producer
from partq.client.produce.results import UNKNOWN_OFFSET, Position
from partq.core.model import PartitionId
from partq.lab.verdict.journal import JournalWriter
from partq.lab.verdict.journal_rows import MESSAGE_NUMBER_HEADER, PublishedRow
from partq.lab.workload.arguments import parser_of
from partq.lab.workload.events import WorkloadEvent, load
from partq.lab.workload.pace import Pace
from partq.lab.workload.synthetic import generate, in_turn, key_names
from partq.logs import configure_logging

TURN_S = 0.01
"""The least time, in seconds, for which a paced producer rests."""
TURN_MESSAGES = 100
"""How often an unpaced producer lets its connections work."""


class ConfirmationJournal:
    """Writes down stored messages, those of one turn of the event loop in one call."""

    def __init__(self, journal: JournalWriter) -> None:
        self.error: BaseException | None = None
        """Why a message was not stored; the first one."""
        self._journal = journal
        self._rows: list[PublishedRow] = []

    def known(self, event: WorkloadEvent, partition: PartitionId) -> None:
        """Note a message that an earlier process of this producer has stored.

        `partition`: that of its key; the message is in an older one if the count has changed since.
        """
        now_ns = time.monotonic_ns()
        self._add(event, Position(partition, UNKNOWN_OFFSET), now_ns, now_ns)

    def answered(
        self, event: WorkloadEvent, sent_ns: int, answer: asyncio.Future[Position]
    ) -> None:
        """Note the answer to a message, which was given to the producer at `sent_ns`."""
        if (error := answer.exception()) is not None:
            self.error = self.error or error
        else:
            self._add(event, answer.result(), time.monotonic_ns(), sent_ns)

    def _add(self, event: WorkloadEvent, at: Position, now_ns: int, sent_ns: int) -> None:
        if not self._rows:
            asyncio.get_running_loop().call_soon(self._write)
        took_us = (now_ns - sent_ns) // 1000
        row = PublishedRow(now_ns, str(at.partition), at.offset, event.key, event.number, took_us)
        self._rows.append(row)

    def _write(self) -> None:
        rows, self._rows = self._rows, []
        self._journal.write(*rows)


async def publish(
    producer: Producer,
    events: Iterable[WorkloadEvent],
    confirmations: ConfirmationJournal,
    pace: Pace | None,
) -> None:
    """Publish all events that are not stored yet, in order, and wait until they are.

    `pace`: None: as fast as they go.

    Raises:
        PartqError: a message can not be stored.
    """
    for count, event in enumerate(events, start=1):
        if producer.skip_stored(event.key):
            confirmations.known(event, producer.partition_of(event.key))
            continue
        sent_ns = time.monotonic_ns()
        answer = await producer.send(
            event.value, key=event.key, headers={MESSAGE_NUMBER_HEADER: str(event.number)}
        )
        answer.add_done_callback(partial(confirmations.answered, event, sent_ns))
        if pace is not None:
            early_s = pace.rest_s(count, time.monotonic())
            if early_s > TURN_S:
                await asyncio.sleep(early_s)
        elif count % TURN_MESSAGES == 0:
            await asyncio.sleep(0)
    await producer.flush()
    await asyncio.sleep(0)  # the callbacks of the last answers run before the caller looks
    if confirmations.error is not None:
        raise confirmations.error


def _events(options: argparse.Namespace, producer: Producer) -> Iterator[WorkloadEvent]:
    if options.input is not None:
        return iter(load(options.input))
    keys = key_names(options.name, options.keys)
    if options.in_turn:
        keys = in_turn(keys, producer.partition_of)
    return generate(keys, messages=options.messages, size_bytes=options.size_bytes)


async def _run(options: argparse.Namespace) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    pace = None
    if options.per_s:
        pace = Pace(options.per_s, options.holds, now=time.monotonic())
        loop.add_signal_handler(signal.SIGUSR1, pace.release)
    with JournalWriter(options.journal, options.name) as journal:
        async with Producer(
            options.url,
            queue=options.queue,
            token=os.environ["PARTQ_TOKEN"],
            producer_id=None if options.drawn_id else options.name,
        ) as producer:
            events = takewhile(lambda _: not stop.is_set(), _events(options, producer))
            await publish(producer, events, ConfirmationJournal(journal), pace)


def main() -> None:
    """Publish what the arguments say."""
    parser = parser_of(__doc__, "name")
    parser.add_argument("--journal", required=True, type=Path)
    parser.add_argument(
        "--drawn-id",
        action="store_true",
        help="draw the producer id; what is started again does not continue then",
    )
    parser.add_argument("--per-s", type=float, default=0.0)
    parser.add_argument(
        "--holds", type=int, nargs="*", default=[], help="counts from which on it goes slowly"
    )
    parser.add_argument("--input", type=Path)
    parser.add_argument("--messages", type=int, default=0)
    parser.add_argument("--keys", type=int, default=1)
    parser.add_argument(
        "--in-turn", action="store_true", help="one message for each partition after the other"
    )
    parser.add_argument("--size-bytes", type=int, default=100)
    configure_logging("info")
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
