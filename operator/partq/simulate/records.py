"""What the store's scripts have answered, and what must hold of that: S1, S2, G8, E1 to E3."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from partq.simulate.loop import Process
from partq.simulate.memory_redis import MemoryRedis
from partq.store.codec import decode_ranges
from partq.wire import batch

FRESH_S: Final = 1.0
"""A lease that was renewed so short a time ago is over for nobody."""

Token = tuple[int, int]
"""(broker epoch, epoch)"""


class Violation(NamedTuple):
    """What must never happen, and has."""

    invariant: str
    text: str
    at: float


class Stored(NamedTuple):
    """A batch in a log."""

    first: int
    broker_epoch: int
    data: bytes
    ids: tuple[int, ...]


class LeaseFacts(NamedTuple):
    """A broker's lease."""

    since: float
    """Since when it has been renewed without a gap in which others may think it over."""
    renewed_at: float


@dataclass(slots=True)
class PartitionFacts:
    """One partition, as the oracle knows it: what is stored, and what no rollback takes back."""

    meta: bytes
    cursor_key: bytes
    # ---- what is stored
    broker_epoch: int = 0
    """Of the owner; 0: nobody owns it."""
    owner: str = ""
    ids: list[int] = field(default_factory=list)
    """The message at each offset."""
    stored_at: list[float] = field(default_factory=list)
    """When the message at each offset was stored."""
    batches: dict[int, Stored] = field(default_factory=dict)
    cursor: int = 0
    acked: frozenset[int] = frozenset()
    member: str = ""
    is_torn: bool = False
    """The store was rolled back, and no broker has claimed the partition since."""
    # ---- what is remembered whatever the store forgets
    top_broker_epoch: int = 0
    top_epoch: int = 0
    commit_epoch: int = 0
    """That of the last commit: later ones are of binds."""
    calls: set[tuple[int, int]] = field(default_factory=set)
    """(broker epoch, number) of the append calls that have stored something."""
    taken_over: int = 0
    """The broker epoch of the last claim that took the partition from a silent owner."""

    def covers(self, stop: int) -> bool:
        """Say whether everything below an offset is acknowledged, as stored."""
        return all(offset in self.acked for offset in range(self.cursor, stop))


class Records:
    """Follows every script; judges it against all that went before."""

    def __init__(
        self,
        memory: MemoryRedis,
        partitions: dict[str, tuple[bytes, bytes]],
        fail: Callable[[str, str], None],
        now: Callable[[], float],
    ) -> None:
        self.on_commit: Callable[[str, int, str, str], None] | None = None
        """Told of a partition, an attempt, its source and its target, as its commit is stored."""
        self.partitions = {
            name: PartitionFacts(meta, cursor) for name, (meta, cursor) in partitions.items()
        }
        self.finished: set[int] = set()
        """Messages that some application has finished: only those may be acknowledged."""
        self.append_counts: dict[int, int] = {}
        """How often each message was stored."""
        self.was_rolled_back = False
        self.forgotten: set[int] = set()
        """Messages that the store has lost with its last writes."""
        self.leases: dict[str, LeaseFacts] = {}
        """Of each broker, until it has given its lease up."""
        self._memory = memory
        self._fail = fail
        self._now = now
        self._heard: dict[Process, set[str]] = {}
        self._began_at: dict[Process, float] = {}
        """When each coordinator heard of a broker for the first time."""
        self._by_meta = {facts.meta: (name, facts) for name, facts in self.partitions.items()}
        self._last_attempt = 0
        self._judges: dict[str, Callable[[str, PartitionFacts, Sequence[bytes], Any], None]] = {
            "append_batches": self._appended,
            "claim_partition": self._claimed,
            "yield_partition": self._yielded,
            "bind_member": self._bound,
            "flush_cursor": self._flushed,
            "commit_handoff": self._committed,
            "trim_log": self._trimmed,
        }

    def heard(self, coordinator: Process, broker: str) -> None:
        """Learn that a coordinator has got the state of a broker."""
        self._heard.setdefault(coordinator, set()).add(broker)
        self._began_at.setdefault(coordinator, self._now())

    def follow(
        self,
        process: Process,
        script: str,
        keys: Sequence[bytes],
        args: Sequence[bytes],
        answer: Any,
    ) -> None:
        """Take a script's answer."""
        judge = self._judges.get(script)
        if judge is not None:
            name, facts = self._by_meta[keys[0]]
            judge(name, facts, args, answer)
        elif script == "draw_attempt" and answer:
            if answer <= self._last_attempt:
                self._fail("attempts", f"attempt {answer} was drawn after {self._last_attempt}")
            self._last_attempt = max(self._last_attempt, answer)
            self._judge_plan(process)
        elif script == "release_lease":
            self.leases.pop(args[0].decode(), None)
        elif script == "renew_lease" and answer:
            broker, now = args[0].decode(), self._now()
            known = self.leases.get(broker)
            is_new = known is None or now - known.renewed_at >= FRESH_S
            self.leases[broker] = LeaseFacts(now if known is None or is_new else known.since, now)

    def roll_back(self) -> None:
        """Learn that the store has come back with older keys."""
        self.was_rolled_back = True
        self.leases.clear()  # the store may know other ones than those that were renewed last
        for facts in self.partitions.values():
            facts.is_torn = True
            fields = self._memory.hash(facts.meta)
            facts.owner = fields[b"owner"].decode()
            facts.broker_epoch = int(fields[b"broker_epoch"]) if facts.owner else 0
            end = int(fields[b"next"])
            self.forgotten.update(facts.ids[end:])
            del facts.ids[end:], facts.stored_at[end:]
            facts.batches = {first: b for first, b in facts.batches.items() if first < end}
            cursor = self._memory.hash(facts.cursor_key)
            facts.member = cursor[b"member"].decode()
            self._keep(facts, int(cursor[b"cursor"]), cursor[b"acked"])

    # ---- one script each ------------------------------------------------------------------------

    def _appended(
        self, name: str, facts: PartitionFacts, args: Sequence[bytes], answer: Any
    ) -> None:
        if answer in (0, -1):
            return
        broker_epoch, number = int(args[0]), int(args[1])
        end, _, *verdicts = answer.decode().split()
        if end == str(len(facts.ids)):
            return  # nothing stored, or a repeat
        if broker_epoch != facts.broker_epoch:
            self._fail("G8", f"{name}: an append counts under the old broker epoch {broker_epoch}")
        if (broker_epoch, number) in facts.calls:
            self._fail("chain", f"{name}: append call {number} was stored twice")
        facts.calls.add((broker_epoch, number))
        for verdict, data in zip(verdicts, args[7::7], strict=True):
            letter, offset, _ = verdict.split(":")
            if letter != "S":
                continue
            ids = tuple(int(message.value) for message in batch.decode(data))
            if int(offset) != len(facts.ids):
                self._fail("chain", f"{name}: stored at {offset}, the log ends at {len(facts.ids)}")
            facts.batches[int(offset)] = Stored(int(offset), broker_epoch, data, ids)
            facts.ids.extend(ids)
            facts.stored_at.extend([self._now()] * len(ids))
            for each in ids:
                self.append_counts[each] = self.append_counts.get(each, 0) + 1

    def _claimed(
        self, name: str, facts: PartitionFacts, args: Sequence[bytes], answer: Any
    ) -> None:
        if isinstance(answer, int):
            return
        claimed, owner = int(answer[0]), args[0].decode()
        if claimed <= facts.top_broker_epoch:
            self._fail("E3", f"{name}: broker epoch {claimed} after {facts.top_broker_epoch}")
        if facts.owner not in ("", owner) and facts.owner in self.leases and not facts.is_torn:
            facts.taken_over = claimed
        facts.top_broker_epoch = max(facts.top_broker_epoch, claimed)
        facts.broker_epoch, facts.owner, facts.is_torn = claimed, owner, False

    def _yielded(
        self, name: str, facts: PartitionFacts, args: Sequence[bytes], answer: Any
    ) -> None:
        if answer != 1:
            return
        if int(args[0]) != facts.broker_epoch:
            self._fail("G8", f"{name}: yielded under the old broker epoch {int(args[0])}")
        stored = int(self._memory.hash(facts.meta)[b"broker_epoch"])
        if stored <= facts.top_broker_epoch:
            self._fail("E3", f"{name}: broker epoch {stored} after {facts.top_broker_epoch}")
        facts.top_broker_epoch = max(facts.top_broker_epoch, stored)
        facts.broker_epoch, facts.owner = 0, ""

    def _bound(self, name: str, facts: PartitionFacts, args: Sequence[bytes], answer: Any) -> None:
        if answer <= 0:
            return
        self._judge_owner(name, facts, args, "bind")
        if args[2].decode() != facts.member:
            self._fail("S1", f"{name}: {args[2].decode()} was bound; on record is {facts.member}")
        self._judge_epoch(name, facts, answer)

    def _flushed(
        self, name: str, facts: PartitionFacts, args: Sequence[bytes], answer: Any
    ) -> None:
        if answer != 1:
            return
        self._judge_owner(name, facts, args, "flush")
        self._judge_acks(name, facts, int(args[2]), args[3])

    def _committed(
        self, name: str, facts: PartitionFacts, args: Sequence[bytes], answer: Any
    ) -> None:
        if answer <= 0 or answer == facts.top_epoch:
            return
        self._judge_owner(name, facts, args, "commit")
        if args[2].decode() != facts.member:
            self._fail("E2", f"{name}: committed from {args[2].decode()}, not from {facts.member}")
        self._judge_epoch(name, facts, answer)
        self._judge_acks(name, facts, int(args[7]), args[8])
        source, facts.member = facts.member, args[5].decode()
        facts.commit_epoch = answer
        if self.on_commit is not None:
            self.on_commit(name, int(args[4]), source, facts.member)

    def _trimmed(
        self, name: str, facts: PartitionFacts, args: Sequence[bytes], answer: Any
    ) -> None:
        if answer == 0:
            return
        first = int(answer[0])
        if first > facts.cursor:
            self._fail("S2", f"{name}: trimmed to {first}, the cursor is at {facts.cursor}")

    def _judge_plan(self, coordinator: Process) -> None:
        """Who plans must have heard once of every broker that has lived since it began to look.

        One that came later is no part of that, nor is one that has just come, or come back: it may
        have done so since the leases were read.
        """
        now = self._now()
        began_at = self._began_at.get(coordinator, now)
        living = {
            broker
            for broker, lease in self.leases.items()
            if now - lease.renewed_at < FRESH_S <= now - lease.since and lease.since <= began_at
        }
        if unheard := living - self._heard.get(coordinator, set()):
            self._fail("lists", f"planned without having heard of {', '.join(sorted(unheard))}")

    # ---- what they have in common ---------------------------------------------------------------

    def _judge_owner(
        self, name: str, facts: PartitionFacts, args: Sequence[bytes], what: str
    ) -> None:
        if int(args[0]) != facts.broker_epoch:
            self._fail("G8", f"{name}: a {what} counts under the old broker epoch {int(args[0])}")

    def _judge_epoch(self, name: str, facts: PartitionFacts, epoch: int) -> None:
        if epoch <= facts.top_epoch:
            self._fail("E3", f"{name}: epoch {epoch} after {facts.top_epoch}")
        facts.top_epoch = max(facts.top_epoch, epoch)

    def _judge_acks(self, name: str, facts: PartitionFacts, cursor: int, ranges: bytes) -> None:
        if cursor < facts.cursor:
            self._fail("S2", f"{name}: the cursor goes back from {facts.cursor} to {cursor}")
        before = range(facts.cursor)
        known = facts.acked
        self._keep(facts, cursor, ranges)
        new = [o for o in (*range(len(before), cursor), *facts.acked) if o not in known]
        for offset in new:
            if offset >= len(facts.ids) or facts.ids[offset] not in self.finished:
                self._fail("S2", f"{name}: offset {offset} is acknowledged, and nobody has done it")
                return

    def _keep(self, facts: PartitionFacts, cursor: int, ranges: bytes) -> None:
        facts.cursor = cursor
        facts.acked = frozenset(
            offset for start, stop in decode_ranges(ranges) for offset in range(start, stop)
        )
