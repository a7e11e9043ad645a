"""What the store's scripts have answered, and what must hold of that: S1, S2, G8, E1 to E3."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from partq.broker.dead_letters.forwarder import PATIENCE_S
from partq.core.model import PartitionId
from partq.lab.simulate.machine.loop import Process
from partq.lab.simulate.machine.memory_redis import MemoryRedis
from partq.lab.simulate.oracle.facts import GroupPartitionFacts, LogFacts, Stored, seat_name
from partq.lab.simulate.oracle.letters import Letters
from partq.lab.simulate.oracle.plans import Plans
from partq.store.codec import decode_counts, decode_ranges
from partq.store.keys import Keys
from partq.wire import batch

FIRST_S: Final = 0.5
"""By then the queue has its groups; one that is made later is made again."""


class Records:
    """Follows every script; judges it against all that went before."""

    def __init__(
        self,
        memory: MemoryRedis,
        keys: Keys,
        letter_keys: Keys,
        partitions: Iterable[PartitionId],
        limits: Mapping[str, int | None],
        fail: Callable[[str, str], None],
        now: Callable[[], float],
        clock: Callable[[], float],
    ) -> None:
        """Prepare it.

        Args:
            memory: the keys of Redis.
            keys: the names of those of the queue.
            letter_keys: of those of the queue that dead letters go to.
            partitions: all that the queue has.
            limits: of each group, how often a message of it is delivered again at most.
            fail: called with each violation.
            now: the simulated time.
            clock: Redis's time.
        """
        self.on_commit: Callable[[str, int, str, str], None] | None = None
        """Told of a seat, an attempt, its source and its target, as its commit is stored."""
        self.on_birth: Callable[[GroupPartitionFacts], None] | None = None
        """Told of the seat of a group that begins, or begins again."""
        self.on_late_letter: Callable[[GroupPartitionFacts], None] | None = None
        """Told of a seat whose dead letter has left, for which deliveries may have stopped."""
        self._letters_since: dict[tuple[str, int], float] = {}
        self.logs: dict[str, LogFacts] = {}
        self.seats: dict[str, GroupPartitionFacts] = {}
        self.done: dict[str, set[int]] = {group: set() for group in limits}
        """What each group needs no more; see `GroupPartitionFacts`."""
        for partition in partitions:
            log = LogFacts(
                str(partition), keys.meta(partition).encode(), keys.log(partition).encode()
            )
            self.logs[log.name] = log
            for group in limits:
                name, key = seat_name(partition, group), keys.cursor(partition, group).encode()
                seat = self.seats[name] = GroupPartitionFacts(
                    name, log, group, key, self.done[group]
                )
                log.seats.append(seat)
        self.append_counts: dict[int, int] = {}
        """How often each message was stored."""
        self.was_rolled_back = False
        self.keeps_expired = False
        """What outlives its time to live becomes a dead letter."""
        self.effects: Counter[str] = Counter()
        """What has happened, and how often: an event that met nothing shows nothing."""
        self.numbered: set[int] = set()
        """Messages that the library has numbered."""
        self.forgotten: set[int] = set()
        """Messages that the store has lost with its last writes."""
        self._memory = memory
        self._fail = fail
        self._now = now
        self._clock = clock
        self._latest_ms = 0
        """The latest that Redis's clock has shown since messages expire."""
        self._ttl_ms: int | None = None
        """The shortest time that messages were given to live."""
        self.letters = Letters(memory, letter_keys, fail, limits, self._is_expired, self.effects)
        self.is_in_flight: Callable[[GroupPartitionFacts, int], bool] = lambda *_: False
        """Whether the message at an offset is with a member."""
        self._by_meta = {log.meta: log for log in self.logs.values()}
        self._by_cursor = {seat.key: seat for seat in self.seats.values()}
        self.plans = Plans(keys.brokers().encode(), fail, now)
        self._log_judges: dict[str, Callable[[LogFacts, Sequence[bytes], Any], None]] = {
            "append_batches": self._appended,
            "claim_partition": self._claimed,
            "yield_partition": self._yielded,
            "affirm_partition": self._affirmed,
            "trim_log": self._trimmed,
        }
        self._seat_judges: dict[
            str, Callable[[GroupPartitionFacts, Sequence[bytes], Any], None]
        ] = {
            "add_group": self._added,
            "remove_group": self._removed,
            "bind_member": self._bound,
            "flush_cursor": self._flushed,
            "commit_handoff": self._committed,
            "reset_cursor": self._was_reset,
            "add_dead_letters": self._letters_added,
            "remove_dead_letter": self._letter_removed,
        }

    def follow(
        self,
        process: Process,
        script: str,
        keys: Sequence[bytes],
        args: Sequence[bytes],
        answer: Any,
    ) -> None:
        """Take a script's answer."""
        log = self._by_meta.get(keys[0])
        if log is not None:
            if (judge := self._log_judges.get(script)) is not None:
                judge(log, args, answer)
            elif (judge_seat := self._seat_judges.get(script)) is not None:
                judge_seat(self._by_cursor[keys[1]], args, answer)
            if script != "append_batches":
                self._judge_marks(log)
        elif keys[0] == self.letters.target:
            if script == "append_batches":
                self.letters.stored()
        else:
            self.plans.follow(process, script, keys, args, answer)

    def roll_back(self) -> None:
        """Learn that the store has come back with older keys."""
        self.was_rolled_back = True
        self.plans.leases.clear()  # the store may know other ones than those that were renewed last
        for log in self.logs.values():
            log.is_torn = True
            fields = self._memory.hash(log.meta)
            log.owner = fields[b"owner"].decode()
            log.broker_epoch = int(fields[b"broker_epoch"]) if log.owner else 0
            end = int(fields[b"next"])
            self.effects["forgotten message"] += len(log.ids[end:])
            self.forgotten.update(log.ids[end:])
            del log.ids[end:], log.stored_at[end:], log.stored_ms[end:]
            log.batches = {first: b for first, b in log.batches.items() if first < end}
            for seat in log.seats:
                seat.is_there = seat.mark in fields
                if seat.is_there:
                    self._read(seat)
                    # What it has done with may be of a time that a reset had ended.
                    seat.done.update(log.ids[: seat.cursor], (log.ids[o] for o in seat.acked))
        self.letters.roll_back(seat for seat in self.seats.values() if seat.is_there)

    # ---- one script each ------------------------------------------------------------------------

    def _appended(self, log: LogFacts, args: Sequence[bytes], answer: Any) -> None:
        if answer in (0, -1):
            return
        self.effects["refused for room"] += answer.count(b" Q:")
        broker_epoch, number = int(args[0]), int(args[1])
        end = int(answer.partition(b" ")[0])
        if b" N:" in answer and not self.was_rolled_back:
            self._fail("numbers", f"{log.name}: a number came again with another message")
        if end == len(log.ids):
            return  # nothing stored, or a repeat
        if broker_epoch != log.broker_epoch:
            self._fail("G8", f"{log.name}: an append counts under the old {broker_epoch}")
        if (broker_epoch, number) in log.calls:
            self._fail("chain", f"{log.name}: append call {number} was stored twice")
        log.calls.add((broker_epoch, number))
        new = []
        for entry in reversed(self._memory.stream(log.stream).entries):
            if entry.id[0] < len(log.ids):
                break
            new.append(entry)
        for entry in reversed(new):
            first = entry.id[0]
            fields = dict(zip(entry.fields[::2], entry.fields[1::2], strict=True))
            if first != len(log.ids):
                self._fail("chain", f"{log.name}: stored at {first}, the log ends elsewhere")
            data = fields[b"batch"]
            ids = tuple(int(message.value) for message in batch.decode(data))
            log.batches[first] = Stored(first, broker_epoch, data, ids)
            log.ids.extend(ids)
            log.stored_at.extend([self._now()] * len(ids))
            log.stored_ms.extend([int(fields[b"at_ms"])] * len(ids))
            for each in ids:
                self.append_counts[each] = self.append_counts.get(each, 0) + 1
                if each in self.numbered and log.ids.count(each) > 1:
                    self._fail("numbers", f"{log.name}: message {each} is stored twice")

    def _claimed(self, log: LogFacts, args: Sequence[bytes], answer: Any) -> None:
        if isinstance(answer, int):
            return
        claimed, owner = int(answer[0]), args[0].decode()
        if claimed <= log.top_broker_epoch:
            self._fail("E3", f"{log.name}: broker epoch {claimed} after {log.top_broker_epoch}")
        if log.owner not in ("", owner) and log.owner in self.plans.leases and not log.is_torn:
            log.taken_over = claimed
        log.top_broker_epoch = max(log.top_broker_epoch, claimed)
        log.broker_epoch, log.owner, log.is_torn = claimed, owner, False

    def _yielded(self, log: LogFacts, args: Sequence[bytes], answer: Any) -> None:
        if answer != 1:
            return
        if int(args[0]) != log.broker_epoch:
            self._fail("G8", f"{log.name}: yielded under the old broker epoch {int(args[0])}")
        stored = int(self._memory.hash(log.meta)[b"broker_epoch"])
        if stored <= log.top_broker_epoch:
            self._fail("E3", f"{log.name}: broker epoch {stored} after {log.top_broker_epoch}")
        log.top_broker_epoch = max(log.top_broker_epoch, stored)
        log.broker_epoch, log.owner = 0, ""

    def _affirmed(self, log: LogFacts, args: Sequence[bytes], answer: Any) -> None:
        if answer != 1:
            return
        stored = int(self._memory.hash(log.meta)[b"affirmed"])
        if stored <= log.affirmed:
            self._fail("G8", f"{log.name}: affirmed, and a claim decided before that still counts")
        log.affirmed = stored

    def _trimmed(self, log: LogFacts, args: Sequence[bytes], answer: Any) -> None:
        if answer == 0:
            return
        first = int(answer[0])
        self.effects["trimmed"] += first > log.first
        log.first = first
        for seat in log.seats:
            if seat.is_there and first > seat.cursor:
                self._fail("S2", f"{seat.name}: trimmed to {first}, its cursor is {seat.cursor}")

    def _added(self, seat: GroupPartitionFacts, args: Sequence[bytes], answer: Any) -> None:
        if answer != 1:
            return
        self.effects["group made again"] += self._now() > FIRST_S
        seat.is_there = True
        self._begin(seat)
        if self.on_birth is not None:
            self.on_birth(seat)

    def _removed(self, seat: GroupPartitionFacts, args: Sequence[bytes], answer: Any) -> None:
        if answer == 1:
            seat.is_there = False
            self.letters.drop(seat)

    def _bound(self, seat: GroupPartitionFacts, args: Sequence[bytes], answer: Any) -> None:
        if answer <= 0 or (answer, args[0], args[4]) == seat.bound:
            return  # nothing was written, or it is a repeat
        seat.bound = answer, args[0], args[4]
        self._judge_owner(seat, args, "bind")
        if args[2].decode() != seat.member:
            self._fail("S1", f"{seat.name}: {args[2].decode()} was bound, not {seat.member}")
        self._judge_epoch(seat, answer)

    def _flushed(self, seat: GroupPartitionFacts, args: Sequence[bytes], answer: Any) -> None:
        if answer != 1:
            return
        self._judge_owner(seat, args, "flush")
        self._judge_acks(seat)

    def _committed(self, seat: GroupPartitionFacts, args: Sequence[bytes], answer: Any) -> None:
        if answer <= 0 or answer in (seat.top_epoch, seat.commit_epoch):
            return  # nothing was written, or it is a repeat, which may come after a later bind
        self._judge_owner(seat, args, "commit")
        if args[2].decode() != seat.member:
            self._fail("E2", f"{seat.name}: committed from {args[2].decode()}, not {seat.member}")
        self._judge_epoch(seat, answer)
        source = seat.member
        self._judge_acks(seat)
        seat.commit_epoch = answer
        if self.on_commit is not None:
            self.on_commit(seat.name, int(args[4]), source, seat.member)

    def _was_reset(self, seat: GroupPartitionFacts, args: Sequence[bytes], answer: Any) -> None:
        if isinstance(answer, int) or int(answer[0]) == seat.top_epoch:
            return
        if int(args[2]) != seat.epoch:
            self._fail("E2", f"{seat.name}: a reset counts under {int(args[2])}, not {seat.epoch}")
        self.effects["reset back" if int(answer[1]) < seat.cursor else "reset forward"] += 1
        self._judge_owner(seat, args, "reset")
        self._begin(seat)
        self._judge_epoch(seat, int(answer[0]))
        seat.reset_to.append(seat.cursor)

    def _letters_added(self, seat: GroupPartitionFacts, args: Sequence[bytes], answer: Any) -> None:
        self.letters.added(seat, answer)
        for number in seat.outbox:
            self._letters_since.setdefault((seat.name, number), self._now())

    def _letter_removed(
        self, seat: GroupPartitionFacts, args: Sequence[bytes], answer: Any
    ) -> None:
        since = self._letters_since.get((seat.name, int(args[2])), self._now())
        if self._now() - since >= PATIENCE_S and self.on_late_letter is not None:
            self.on_late_letter(seat)
        self.letters.removed(seat, answer)

    # ---- time to live ---------------------------------------------------------------------------

    def let_expire(self, ttl_s: float) -> None:
        """Learn that messages live so long from now on; some broker may think so to the end."""
        ttl_ms = round(ttl_s * 1000)
        self._ttl_ms = ttl_ms if self._ttl_ms is None else min(self._ttl_ms, ttl_ms)

    def needs_no_more(self, seat: GroupPartitionFacts, offset: int) -> bool:
        """Say whether a group may go on beyond the message at an offset."""
        return seat.is_done(offset) or self._is_expired(seat, offset)

    def _is_expired(self, seat: GroupPartitionFacts, offset: int) -> bool:
        self._latest_ms = max(self._latest_ms, round(self._clock() * 1000))
        return (
            self._ttl_ms is not None
            and offset < len(seat.log.ids)
            and seat.log.stored_ms[offset] + self._ttl_ms <= self._latest_ms
        )

    # ---- what they have in common ---------------------------------------------------------------

    def _judge_owner(self, seat: GroupPartitionFacts, args: Sequence[bytes], what: str) -> None:
        if int(args[0]) != seat.log.broker_epoch:
            self._fail("G8", f"{seat.name}: a {what} counts under the old {int(args[0])}")

    def _judge_epoch(self, seat: GroupPartitionFacts, epoch: int) -> None:
        if epoch <= seat.top_epoch:
            self._fail("E3", f"{seat.name}: epoch {epoch} after {seat.top_epoch}")
        seat.top_epoch, seat.epoch = max(seat.top_epoch, epoch), epoch

    def _judge_acks(self, seat: GroupPartitionFacts) -> None:
        """Judge what a broker's book has made of the stored one."""
        cursor, acked = seat.cursor, seat.acked
        self._read(seat)
        if seat.cursor < cursor:
            self._fail("S2", f"{seat.name}: the cursor goes back from {cursor} to {seat.cursor}")
        if lost := [offset for offset in acked if not seat.is_stored_done(offset)]:
            self._fail("S2", f"{seat.name}: the ack of {min(lost)} is forgotten")
        new = [o for o in (*range(cursor, seat.cursor), *seat.acked) if o not in acked]
        for offset in new:
            if seat.is_done(offset):
                continue
            if not self._is_expired(seat, offset):
                self._fail("S2", f"{seat.name}: {offset} is acknowledged, and nobody has done it")
                return
            if self.is_in_flight(seat, offset):
                self._fail("S2", f"{seat.name}: {offset} expires while a member has it")
            if self.keeps_expired:
                self._fail("S2", f"{seat.name}: {offset} expires, and is no dead letter")
            seat.done.add(seat.log.ids[offset])
            self.effects["expired"] += 1

    def _judge_marks(self, log: LogFacts) -> None:
        """Whatever was called: no group has less in the log than it needs, or goes back in it."""
        fields = self._memory.hash(log.meta)
        for seat in log.seats:
            if not seat.is_there:
                continue
            trimmed, mark, end = (int(fields[each]) for each in (b"trimmed", seat.mark, b"next"))
            cursor = int(self._memory.hash(seat.key)[b"cursor"])
            if not trimmed <= mark <= cursor <= end:
                self._fail(
                    "marks",
                    f"{seat.name}: {trimmed} to {end} are in the log, marked {mark}, its cursor is "
                    f"{cursor}",
                )
            if mark > min(seat.outbox.values(), default=mark):
                self._fail("marks", f"{seat.name}: marked {mark}, {seat.outbox} wait to be sent")
            if cursor < seat.cursor:
                self._fail("S2", f"{seat.name}: the cursor goes from {seat.cursor} to {cursor}")

    def _begin(self, seat: GroupPartitionFacts) -> None:
        """Let a group begin at its stored cursor: what it had done with from there on, it has not.

        What is below is none of its business any more.
        """
        ids, held = seat.log.ids, set(seat.outbox.values())
        seat.old_epoch = seat.top_epoch
        self._read(seat)
        again = range(seat.cursor, len(ids))
        seat.done.difference_update(ids[offset] for offset in again if offset not in held)
        seat.done.update(ids[: seat.cursor])
        seat.sent.clear()
        seat.letters.clear()

    def counts(self, seat: GroupPartitionFacts) -> dict[int, int]:
        """Return how often each message was delivered again, as stored."""
        return decode_counts(self._memory.hash(seat.key)[b"redeliveries"])

    def _read(self, seat: GroupPartitionFacts) -> None:
        """Take what is stored."""
        stored = self._memory.hash(seat.key)
        seat.cursor, seat.member = int(stored[b"cursor"]), stored[b"member"].decode()
        seat.epoch = int(stored[b"epoch"])
        seat.acked = frozenset(
            offset
            for start, stop in decode_ranges(stored[b"acked"])
            for offset in range(start, stop)
        )
