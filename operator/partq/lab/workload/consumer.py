"""A consumer process: works on each message, writes it down, then acknowledges it.

    python -m partq.lab.workload.consumer --journal DIR --member c-1 ...

SIGTERM makes it leave the group; it ends with 0 when its partitions are handed over. The token is
read from PARTQ_TOKEN.
"""

import argparse
import asyncio
import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from partq import Consumer, Delivery, LockedSession
from partq.core.model import Cause, PartitionId
from partq.errors import FencedError
from partq.lab.verdict import journal_rows
from partq.lab.verdict.journal import JournalWriter
from partq.lab.workload.arguments import parser_of
from partq.logs import configure_logging

_LOOK_S = 0.05


class MemberJournal:
    """What one member writes down, in the order in which it happens."""

    def __init__(self, member: str, journal: JournalWriter) -> None:
        self._member = member
        self._journal = journal

    def assigned(self, partition: PartitionId) -> None:
        """Note that a partition is this member's."""
        self._held(partition, journal_rows.ASSIGNED)

    def revoked(self, partition: PartitionId, cause: Cause) -> None:
        """Note that a partition is this member's no more."""
        self._held(partition, journal_rows.REVOKED)

    def has_lanes(self, partition: PartitionId, ranges: Sequence[tuple[int, int]]) -> None:
        """Note how many slots of a partition are this member's."""
        slots = sum(stop - first for first, stop in ranges)
        self._held(partition, journal_rows.LANES, slots)

    def processed(self, message: Delivery, begun_ns: int) -> None:
        """Note a message; returns when a kill -9 of this process cannot undo it.

        `begun_ns`: when it was handed out, on the clock of the journal.
        """
        token = message.token
        row = journal_rows.DeliveredRow(
            at_ns=time.monotonic_ns(),
            member=self._member,
            partition=str(message.partition),
            offset=message.offset,
            broker_epoch=token.broker_epoch,
            epoch=token.epoch,
            cause=int(message.cause),
            key=message.key or "",
            number=_number_of(message),
            begun_ns=begun_ns,
        )
        self._journal.write(row)

    def joined(self) -> None:
        """Note that this member asks for sessions from now on."""
        row = journal_rows.HeldRow(time.monotonic_ns(), self._member, "", journal_rows.JOINED)
        self._journal.write(row)

    def session(self, session: LockedSession, change: str) -> None:
        """Note that a session is locked, or about to be unlocked."""
        now_ns = time.monotonic_ns()
        row = journal_rows.LockRow(now_ns, self._member, session.session_id, session.lock, change)
        self._journal.write(row)

    def found(self, message: Delivery, state: int) -> int:
        """Note the state of a message's session before it is processed; return its number."""
        number, now_ns = _number_of(message), time.monotonic_ns()
        row = journal_rows.StateRow(now_ns, self._member, message.key or "", number, state)
        self._journal.write(row)
        return number

    def _held(self, partition: PartitionId, change: str, slots: int = 0) -> None:
        now_ns = time.monotonic_ns()
        row = journal_rows.HeldRow(now_ns, self._member, str(partition), change, slots)
        self._journal.write(row)


async def _run(options: argparse.Namespace) -> None:
    # A member of Kubernetes is a pod and a container, with a slash between.
    with JournalWriter(options.journal, options.member.replace("/", ".")) as journal:
        diary = MemberJournal(options.member, journal)
        async with Consumer(
            options.url,
            queue=options.queue,
            group=options.group,
            token=os.environ["PARTQ_TOKEN"],
            member=options.member,
            on_assigned=diary.assigned,
            on_revoked=diary.revoked,
            on_lanes=diary.has_lanes,
        ) as consumer:
            async for message in consumer:
                begun_ns = time.monotonic_ns()
                await work_on(options)
                await until_let_go(options)
                diary.processed(message, begun_ns)
                consumer.ack_nowait(message)
            # What was refused is redelivered, here or elsewhere, with its cause.
            with contextlib.suppress(FencedError):
                await consumer.flush()


async def work_on(options: argparse.Namespace) -> None:
    """Work on a message for as long as the arguments say."""
    if options.work_ms:
        await asyncio.sleep(options.work_ms / 1000)


async def until_let_go(options: argparse.Namespace) -> None:
    """Wait while the consumer is held."""
    while _is_there(options.work_while):  # noqa: ASYNC110 - made by another process
        await asyncio.sleep(_LOOK_S)


def _is_there(file: Path | None) -> bool:
    return file is not None and file.exists()


def _number_of(message: Delivery) -> int:
    return int(message.headers[journal_rows.MESSAGE_NUMBER_HEADER])


def consumer_parser(about: str | None) -> argparse.ArgumentParser:
    """Return a parser of the arguments that consumers of all types have."""
    parser = parser_of(about, "group", "member")
    parser.add_argument("--journal", required=True, type=Path)
    parser.add_argument("--work-ms", type=float, default=0.0)
    parser.add_argument(
        "--work-while", type=Path, help="work on a message while this file is there"
    )
    return parser


def main() -> None:
    """Consume until told to leave."""
    configure_logging("info")
    asyncio.run(_run(consumer_parser(__doc__).parse_args()))


if __name__ == "__main__":
    main()
