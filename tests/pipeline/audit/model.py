"""A small model of brokers and members that writes the audit record that they would write.

Windows and causes are those of the real book, `partq.core.cursor.cursor.Delivery`.
Broker epochs, epochs and attempts are drawn as in the scripts. One step of random
work after the other, by a seed.
"""

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from random import Random

from crc32c import crc32c

from partq.core.cursor.cursor import GroupCursor
from partq.core.hashing import slot_of
from partq.core.model import Cause
from partq.wire import batch as wire
from partq.wire.audit import GENESIS, AuditRecord, encode_record
from partq.wire.batch import encode_message
from tests.audit_record import encode_group
from tests.core.batches import Batch

START_MS = 1_795_000_000_000
STEP_MS = 40
WINDOW = 7


@dataclass
class Line:
    """A record before it is in a group; `fields` as `encode_record` takes them."""

    kind: str
    slots: bytes = b""
    fields: dict = field(default_factory=dict)


@dataclass
class Group:
    at_ms: int
    broker: str
    broker_epoch: int
    lines: list[Line]


@dataclass
class Message:
    """A message as it is archived."""

    partition: str
    offset: int
    key: str | None
    at_ms: int
    append_broker_epoch: int
    value: bytes
    headers: list | None = None
    event_time: datetime | None = None
    encoded: bytes | None = None
    queue: str = "orders"

    def row(self):
        """Return its columns."""
        generation, index = map(int, self.partition.split("."))
        row = {field.name: getattr(self, field.name) for field in fields(self)}
        at = datetime.fromtimestamp(row.pop("at_ms") / 1000, UTC)
        return row | {"generation": generation, "partition_index": index, "publish_time": at}


class Partition:
    """One partition and its groups, and the record of what happens to them."""

    def __init__(
        self, name: str, seed: int, groups: tuple[str, ...] = ("workers",), *, start: int = 0
    ) -> None:
        """`start`: how many messages were stored, and done with, before the record began."""
        self.name = name
        self.random = Random(seed)
        self.now_ms = START_MS
        self.record: list[Group] = []
        self.messages: list[Message] = []
        self.end, self.trimmed = start, 0
        self.last = START_MS
        self.numbers: dict[str, int] = {}
        self.keys = [f"key-{number}" for number in range(9)]
        self.broker, self.broker_epoch = "broker-0", 0
        self.groups = {name: GroupState(self, name, start) for name in groups}
        self.messages += [Message(name, at, None, START_MS, 0, b"") for at in range(start)]
        self.write(Line("begin", fields={"first": 0, "stop": start}))
        for each in groups:
            self.write(Line("begin", fields={"group": each, "first": 0, "stop": start}))
        self.claim("broker-0", Cause.NONE)
        for state in self.groups.values():
            state.commit("worker-0", Cause.NONE)

    def draw(self) -> int:
        self.last = max(self.last + 1, self.now_ms)
        return self.last

    def write(self, *lines: Line) -> None:
        self.now_ms += self.random.randrange(1, STEP_MS)
        self.record.append(Group(self.now_ms, self.broker, self.broker_epoch, list(lines)))

    def publish(self) -> None:
        producer = self.random.choice(["p-1", "p-2", ""])
        count = self.random.randrange(1, 12)
        values = [b"%d" % self.random.randrange(65_536) for _ in range(count)]
        number = self.numbers.get(producer, 0) if producer else -1
        self.numbers[producer] = number + count
        told = {"first": self.end, "stop": self.end + count, "producer": producer}
        told |= {"append_broker_epoch": self.broker_epoch}
        if number >= 0:
            told["number"] = number
        line = Line("publish", fields=told)
        self.write(line)
        place = self.now_ms, self.broker_epoch
        for offset, value in enumerate(values, self.end):
            key = self.random.choice(self.keys)
            self.messages.append(Message(self.name, offset, key, *place, value))
        self.end += count
        self.seal(line)

    def seal(self, line: Line) -> None:
        """Give a publish the slots and the checksum of its messages."""
        stored = {each.offset: each for each in self.messages}
        batch = [stored[offset] for offset in range(line.fields["first"], line.fields["stop"])]
        line.slots = b"".join(slot_of(str(each.key)).to_bytes(2, "little") for each in batch)
        bodies = [encode_message(wire.Message(each.key, each.value)) for each in batch]
        line.fields["content_crc"] = crc32c(b"".join(bodies))

    def claim(self, broker: str, cause: Cause) -> None:
        self.broker, self.broker_epoch = broker, self.draw()
        self.write(Line("claim", fields={"first": self.trimmed, "stop": self.end}))
        for state in self.groups.values():
            state.start_again(cause, self.end)

    def trim(self) -> None:
        mark = min(state.book.cursor for state in self.groups.values())
        if mark > self.trimmed:
            self.write(Line("trim", fields={"first": self.trimmed, "stop": mark}))
            self.trimmed = mark

    def run(self, steps: int) -> None:
        """Do so many steps of work, then finish what is there."""
        for _ in range(steps):
            state = self.random.choice(list(self.groups.values()))
            roll = self.random.random()
            if roll < 0.25:
                self.publish()
            elif roll < 0.55:
                state.deliver()
            elif roll < 0.82:
                state.ack()
            elif roll < 0.85:
                state.release()
            elif roll < 0.88:
                state.nack()
            elif roll < 0.91:
                state.flow_lost()
            elif roll < 0.95:
                state.hand_over(is_forced=self.random.random() < 0.4)
            elif roll < 0.97:
                self.claim(f"broker-{self.random.randrange(3)}", Cause.BROKER_CHANGE)
            elif roll < 0.985:
                state.dead_letter()
            else:
                self.trim()
        for state in self.groups.values():
            state.finish()

    def rows(self, since: int = 0) -> list[AuditRecord]:
        """Return the record as it is read, hashes and all."""
        previous, rows = GENESIS, []
        for sequence, group in enumerate(self.record):
            data = [
                encode_record(each.kind, slots=each.slots, **each.fields) for each in group.lines
            ]
            encoded = encode_group(
                previous,
                data,
                sequence=sequence,
                at_ms=group.at_ms,
                broker=group.broker,
                broker_epoch=group.broker_epoch,
            )
            rows += [
                AuditRecord(
                    partition=self.name,
                    sequence=sequence,
                    place=place,
                    previous=previous,
                    chain=encoded.chain,
                    at_ms=group.at_ms,
                    kind=each.kind,
                    broker=group.broker,
                    broker_epoch=group.broker_epoch,
                    slots=each.slots,
                    **each.fields,
                )
                for place, each in enumerate(group.lines)
                if sequence >= since
            ]
            previous = encoded.chain
        return rows


class GroupState:
    """A group in a partition: the real book, and who holds the token."""

    def __init__(self, partition: Partition, name: str, start: int = 0) -> None:
        self.partition, self.name = partition, name
        self.book = GroupCursor(start)
        self.member, self.epoch, self.flow, self.is_bound = "", 0, 0, False

    def write(self, kind: str, **fields) -> None:
        given = {"group": self.name, "member": self.member, "epoch": self.epoch}
        if self.is_bound:
            given |= {"incarnation": f"i-{self.member}", "flow": self.flow}
        self.partition.write(Line(kind, fields=given | fields))

    def bind(self) -> None:
        self.epoch, self.flow, self.is_bound = self.partition.draw(), self.flow + 1, True
        self.write("bind")

    def register(self, member: str) -> None:
        """Give what nobody holds to a member that has chosen it."""
        self.member, self.epoch, self.is_bound = member, self.partition.draw(), False
        self.write("register", incarnation=f"i-{member}")

    def start_again(self, cause: Cause, end: int) -> None:
        self.is_bound = False
        self.book = GroupCursor(self.book.cursor, self.book.acked.pairs(), self.book.redeliveries)
        self.book.mark(end, cause)

    def deliver(self) -> None:
        if not self.is_bound:
            self.bind()
        window = self.book.take(Batch(self.book.position), self.partition.end, WINDOW)
        if window is None:
            return
        begin, cause = window.start, window.cause
        for low, high in [*window.skip, (window.stop, window.stop)]:
            if begin < low:
                self.write(
                    "deliver",
                    first=begin,
                    stop=low,
                    delivery=self.book.number,
                    cause=cause.name.lower() if cause else "",
                )
            begin = high

    def ack(self) -> None:
        """Acknowledge something of what is in hand."""
        book = self.book
        if self.is_bound and book.in_flight:
            start = book.acked.end_of_run(book.cursor)
            stop = self.partition.random.randrange(start, book.position) + 1
            self.ack_range(max(start, stop - 2) if stop % 3 == 0 else start, stop)

    def ack_all(self) -> None:
        self.ack_range(self.book.cursor, self.book.position)

    def ack_range(self, start: int, stop: int) -> None:
        book = self.book
        before = book.acked.pairs()
        book.discard([(start, stop)])
        for low, high in [*before, (stop, stop)]:
            if low <= stop and high > start:
                if start < low:
                    self.write("ack", first=start, stop=low, delivery=book.number)
                start = high

    def release(self) -> None:
        book = self.book
        if self.is_bound and book.in_flight and not book.waiting:
            start = self.partition.random.randrange(book.cursor, book.position)
            number = book.number
            if book.release(start, number):
                self.write("release", first=start, delivery=number)

    def nack(self) -> None:
        book = self.book
        if self.is_bound and book.in_flight:
            start = book.acked.end_of_run(book.cursor)
            number = book.number
            book.nack([(start, start + 1)], number, now=0, delay_s=lambda _: 0, is_free=False)
            book.end_waits(1)
            self.write("nack", first=start, stop=start + 1, delivery=number, cause="nack")

    def flow_lost(self) -> None:
        if self.is_bound:
            self.book.rewind(Cause.FLOW_LOST)
            self.is_bound = False
            self.bind()

    def dead_letter(self) -> None:
        book = self.book
        if self.is_bound and book.in_flight:
            offset = book.acked.end_of_run(book.cursor)
            book.discard([(offset, offset + 1)])
            self.write("dead_letter", first=offset, stop=offset + 1, cause="max_redeliveries")
            self.write("dead_letter", first=offset, stop=offset + 1, flags="sent")

    def hand_over(self, *, is_forced: bool) -> None:
        if not self.is_bound:
            return
        attempt = self.partition.draw()
        self.write("pause", attempt=attempt)
        if self.partition.random.random() < 0.2:
            self.write(self.partition.random.choice(["lapse", "cancel"]), attempt=attempt)
            return
        if not is_forced:
            while self.book.in_flight:
                self.ack()
        cause = "drain_timeout" if is_forced else ""
        span = {"first": self.book.cursor, "stop": self.book.position}
        self.write("drained", attempt=attempt, cause=cause, **span)
        target = f"worker-{self.partition.random.randrange(5)}"
        self.commit(target, Cause.FORCED_COMMIT if is_forced else Cause.NONE, attempt)

    def commit(self, target: str, cause: Cause, attempt: int = 0) -> None:
        attempt = attempt or self.partition.draw()
        source, self.epoch = self.member, self.partition.draw()
        self.book.rewind(cause)
        self.write(
            "commit",
            member=source,
            target=target,
            attempt=attempt,
            cause=cause.name.lower() if cause else "",
        )
        self.member, self.is_bound = target, False

    def finish(self) -> None:
        while self.book.cursor < self.partition.end:
            self.deliver()
            self.ack()


def clean_run(partitions: int = 4, steps: int = 150, seed: int = 1) -> list[Partition]:
    """Return partitions that nothing is wrong with."""
    made = []
    for index in range(partitions):
        groups = ("workers", "billing") if index == 0 else ("workers",)
        partition = Partition(f"2.{index}", seed * 1_000 + index, groups)
        partition.run(steps)
        made.append(partition)
    return made
