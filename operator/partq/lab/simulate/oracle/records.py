"""What the store's scripts have answered, and what must hold of that: S1, S2, G8, E1 to E3."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from partq.broker.dead_letters.forwarder import PATIENCE_S
from partq.core.hashing import slot_of
from partq.core.model import PartitionId
from partq.lab.simulate.machine.loop import Process
from partq.lab.simulate.machine.memory_redis import MemoryRedis
from partq.lab.simulate.oracle.facts import (
    GroupPartitionFacts,
    LogFacts,
    Stored,
    facts_name,
    judge_marks,
)
from partq.lab.simulate.oracle.held_keys import HeldKeys
from partq.lab.simulate.oracle.letters import Letters
from partq.lab.simulate.oracle.plans import Plans
from partq.lab.simulate.oracle.rescales import Rescales
from partq.store.codec import decode_acks, decode_counts
from partq.store.keys import Keys
from partq.store.pipelined_connection import Reply
from partq.wire import batch

FIRST_S: Final = 0.5
"""By then the queue has its groups; one that is created later was removed before."""


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
        """Told of a commit as it is stored: name of the facts, attempt, source and target."""
        self.on_birth: Callable[[GroupPartitionFacts], None] | None = None
        """Told of a group that begins in a partition, or begins again."""
        self.on_begin: Callable[[GroupPartitionFacts], None] = lambda _: None
        """Told of the same, and of a reset."""
        self.round_of: Callable[[GroupPartitionFacts], int] = lambda _: 0
        """The highest epoch that members were told, of which the record may not know."""
        self.on_late_letter: Callable[[GroupPartitionFacts], None] | None = None
        """Told of a partition whose dead letter has left: deliveries may have stopped for it."""
        self._letters_since: dict[tuple[str, int], float] = {}
        self.logs: dict[str, LogFacts] = {}
        self.group_partitions: dict[str, GroupPartitionFacts] = {}
        self.done: dict[str, set[int]] = {group: set() for group in limits}
        """What each group needs no more; see `GroupPartitionFacts`."""
        self._by_meta: dict[bytes, LogFacts] = {}
        self._by_cursor: dict[bytes, GroupPartitionFacts] = {}
        self._keys = keys
        for partition in partitions:
            self._add_facts(partition)
        self.append_counts: dict[int, int] = {}
        """How often each message was stored."""
        self.was_rolled_back = False
        self.client_assigned: frozenset[str] = frozenset()
        """The groups whose members choose their partitions."""
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
        self.held_keys = HeldKeys(memory, fail, now)
        self.letters = Letters(
            memory, letter_keys, fail, limits, self.is_expired, self.held_keys, self.effects
        )
        self.is_in_flight: Callable[[GroupPartitionFacts, int], bool] = lambda *_: False
        """Whether the message at an offset is with a member."""
        self.rescales = Rescales(memory, keys, self.logs, fail, self.effects)
        self.plans = Plans(keys.brokers().encode(), fail, now)
        self._log_judges: dict[str, Callable[[LogFacts, Sequence[bytes], Any], None]] = {
            "append_batches": self._appended,
            "claim_partition": self._claimed,
            "yield_partition": self._yielded,
            "affirm_partition": self._affirmed,
            "trim_log": self._trimmed,
            "seal_slots": self.rescales.sealed,
            "open_partition": self.rescales.opened,
        }
        self._group_judges: dict[
            str, Callable[[GroupPartitionFacts, Sequence[bytes], Any], None]
        ] = {
            "add_group": self._added,
            "remove_group": self._removed,
            "bind_member": self._bound,
            "flush_cursor": self._flushed,
            "commit_handoff": self._committed,
            "commit_parts": self._parts_committed,
            "reset_cursor": self._was_reset,
            "register_member": self._registered,
            "add_dead_letters": self._letters_added,
            "remove_dead_letter": self._letter_removed,
            "open_gate": self.rescales.gate_opened,
        }

    def _add_facts(self, partition: PartitionId) -> None:
        """Begin the facts of a partition's log, and of each group in it."""
        keys = self._keys
        log = LogFacts(str(partition), keys.meta(partition).encode(), keys.log(partition).encode())
        self.logs[log.name] = self._by_meta[log.meta] = log
        for group, done in self.done.items():
            name, key = facts_name(partition, group), keys.cursor(partition, group).encode()
            facts = GroupPartitionFacts(name, log, group, key, done)
            self.group_partitions[name] = self._by_cursor[key] = facts
            log.groups.append(facts)

    def living(self) -> Iterator[GroupPartitionFacts]:
        """Return the place of each group in each partition that the layout names."""
        return (facts for facts in self.group_partitions.values() if not facts.log.is_gone)

    def _layout_changed(self) -> None:
        """Take the news that a script has written the layout: partitions come, and go."""
        self.rescales.layout_changed()
        self._follow_layout()

    def _follow_layout(self) -> None:
        layout = self.rescales.layout
        named = {str(each) for each in layout.all_partitions()} if layout is not None else set()
        for name in sorted(named - self.logs.keys()):
            self._add_facts(PartitionId.parse(name))
        for name, log in self.logs.items():
            log.follow(is_gone=name not in named)

    def follow(
        self,
        process: Process,
        script: str,
        keys: Sequence[bytes],
        args: Sequence[bytes],
        answer: Reply,
    ) -> None:
        """Take a script's answer."""
        log = self._by_meta.get(keys[0])
        if log is not None:
            if (judge := self._log_judges.get(script)) is not None:
                judge(log, args, answer)
            elif (judge_group := self._group_judges.get(script)) is not None:
                judge_group(self._by_cursor[keys[1]], args, answer)
            if script != "append_batches":
                judge_marks(log, self._memory.hash, self._fail)
        elif keys[0] == self.rescales.layout_key:
            self._layout_changed()
        elif keys[0] == self.letters.target:
            if script == "append_batches":
                self.letters.stored()
        else:
            self.plans.follow(process, script, keys, args, answer)

    def roll_back(self) -> None:
        """Learn that the store has come back with older keys."""
        self.was_rolled_back = True
        self.plans.leases.clear()  # the store may know other ones than those that were renewed last
        layout = self.rescales.layout = self.rescales.read_layout()
        self._follow_layout()
        for log in self.logs.values():
            log.is_torn = True
            if log.is_gone and layout is not None and log.generation <= layout.last_generation:
                continue  # it was removed before that
            fields = self._memory.hash(log.meta)
            # A partition that the store has lost may be made a second time.
            log.owner = fields.get(b"owner", b"").decode()
            log.broker_epoch = int(fields[b"broker_epoch"]) if log.owner else 0
            log.first = int(fields.get(b"trimmed", b"0"))
            lost = log.cut(int(fields.get(b"next", b"0")))
            self.effects["forgotten message"] += len(lost)
            self.forgotten.update(lost)
            for facts in log.groups:
                facts.is_there = facts.mark in fields
                if facts.is_there:
                    self._read(facts)
                    # What it has done with may be of a time that a reset had ended.
                    facts.done.update(log.ids[: facts.cursor], (log.ids[o] for o in facts.acked))
        self.held_keys.forget()
        self.rescales.roll_back(self.numbered)
        self.letters.roll_back(facts for facts in self.group_partitions.values() if facts.is_there)

    # ---- one script each ------------------------------------------------------------------------

    def _appended(self, log: LogFacts, args: Sequence[bytes], answer: Reply) -> None:
        if answer in (0, -1):
            return
        self.effects["refused for room"] += answer.count(b" Q:")
        broker_epoch, number = int(args[0]), int(args[1])
        end = int(answer.partition(b" ")[0])
        if b" N:" in answer and not self.was_rolled_back:
            self._fail("numbers", f"{log.name}: a number was repeated with another message")
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
            messages = [*batch.decode(data)]
            ids = tuple(int(message.value) for message in messages)
            log.batches[first] = Stored(first, broker_epoch, data, ids)
            log.ids.extend(ids)
            log.slots.extend(slot_of(message.key or "") for message in messages)
            log.stored_at.extend([self._now()] * len(ids))
            log.stored_ms.extend([int(fields[b"at_ms"])] * len(ids))
            for each in ids:
                self.append_counts[each] = self.append_counts.get(each, 0) + 1
                if each in self.numbered and log.ids.count(each) > 1:
                    self._fail("numbers", f"{log.name}: message {each} is stored twice")
            self.rescales.stored(log, first, log.slots[first:], self.numbered)

    def _claimed(self, log: LogFacts, args: Sequence[bytes], answer: Reply) -> None:
        if isinstance(answer, int):
            return
        claimed, owner = int(answer[0]), args[0].decode()
        if claimed <= log.top_broker_epoch:
            self._fail("E3", f"{log.name}: broker epoch {claimed} after {log.top_broker_epoch}")
        if log.owner not in ("", owner) and log.owner in self.plans.leases and not log.is_torn:
            log.taken_over = claimed
        log.top_broker_epoch = max(log.top_broker_epoch, claimed)
        log.broker_epoch, log.owner, log.is_torn = claimed, owner, False
        for facts in log.groups:
            self.held_keys.claimed(facts)

    def _yielded(self, log: LogFacts, args: Sequence[bytes], answer: Reply) -> None:
        if answer != 1:
            return
        if int(args[0]) != log.broker_epoch:
            self._fail("G8", f"{log.name}: yielded under the old broker epoch {int(args[0])}")
        stored = int(self._memory.hash(log.meta)[b"broker_epoch"])
        if stored <= log.top_broker_epoch:
            self._fail("E3", f"{log.name}: broker epoch {stored} after {log.top_broker_epoch}")
        log.top_broker_epoch = max(log.top_broker_epoch, stored)
        log.broker_epoch, log.owner = 0, ""

    def _affirmed(self, log: LogFacts, args: Sequence[bytes], answer: Reply) -> None:
        if answer != 1:
            return
        stored = int(self._memory.hash(log.meta)[b"affirmed"])
        if stored <= log.affirmed:
            self._fail("G8", f"{log.name}: affirmed, and a claim decided before that still counts")
        log.affirmed = stored

    def _trimmed(self, log: LogFacts, args: Sequence[bytes], answer: Reply) -> None:
        if answer == 0:
            return
        first = int(answer[0])
        self.effects["trimmed"] += first > log.first
        log.first = first
        for facts in log.groups:
            if facts.is_there and first > facts.cursor:
                self._fail("S2", f"{facts.name}: trimmed to {first}, its cursor is {facts.cursor}")

    def _added(self, facts: GroupPartitionFacts, args: Sequence[bytes], answer: Reply) -> None:
        if answer != 1:
            return
        is_first = PartitionId.parse(facts.log.name).generation > 1 or self._now() <= FIRST_S
        self.effects["group created again"] += not is_first
        facts.is_there = True
        self._begin(facts)
        if self.on_birth is not None:
            self.on_birth(facts)

    def _removed(self, facts: GroupPartitionFacts, args: Sequence[bytes], answer: Reply) -> None:
        if answer == 1:
            facts.is_there = False
            self.letters.drop(facts)

    def _bound(self, facts: GroupPartitionFacts, args: Sequence[bytes], answer: Reply) -> None:
        if answer <= 0 or (answer, args[0], args[4]) == facts.bound:
            return  # nothing was written, or it is a repeat
        facts.bound = answer, args[0], args[4]
        self._judge_owner(facts, args, "bind")
        if args[2].decode() != facts.member:
            self._fail("S1", f"{facts.name}: {args[2].decode()} was bound, not {facts.member}")
        self._judge_epoch(facts, answer)

    def _flushed(self, facts: GroupPartitionFacts, args: Sequence[bytes], answer: Reply) -> None:
        if answer != 1 and not isinstance(answer, list):
            return
        self._judge_owner(facts, args, "flush")
        self._judge_acks(facts)
        self.effects["key held"] += self.held_keys.stored(facts)

    def _committed(self, facts: GroupPartitionFacts, args: Sequence[bytes], answer: Reply) -> None:
        if answer <= 0 or answer in (facts.top_epoch, facts.commit_epoch, facts.last_commit):
            return  # nothing was written, or it is a repeat, which may come after a later bind
        self._judge_owner(facts, args, "commit")
        if args[2].decode() != facts.member:
            self._fail("E2", f"{facts.name}: committed from {args[2].decode()}, not {facts.member}")
        self._judge_epoch(facts, answer)
        source = facts.member
        self._judge_acks(facts)
        self.effects["key held"] += self.held_keys.stored(facts)
        if facts.group in self.client_assigned and facts.member:
            self._fail("client", f"{facts.name}: given to {facts.member}, which did not choose it")
        facts.commit_epoch = facts.last_commit = answer
        if self.on_commit is not None:
            self.on_commit(facts.name, int(args[4]), source, facts.member)

    def _parts_committed(
        self,
        facts: GroupPartitionFacts,
        args: Sequence[bytes],
        answer: int | Sequence[int | bytes],
    ) -> None:
        if isinstance(answer, int) or int(answer[0]) in (0, facts.top_epoch, facts.epoch):
            return  # nothing was written
        self._judge_owner(facts, args, "commit")
        self._judge_epoch(facts, int(answer[0]))
        facts.commit_epoch = int(answer[0])
        self.effects["parts moved"] += 1

    def _registered(
        self,
        facts: GroupPartitionFacts,
        args: Sequence[bytes],
        answer: int | Sequence[int | bytes],
    ) -> None:
        if isinstance(answer, int) or answer[0] != 1 or int(answer[1]) == facts.top_epoch:
            return  # nothing was written, or it is a repeat
        member, epoch = args[2].decode(), int(answer[1])
        self._judge_owner(facts, args, "registration")
        if facts.group not in self.client_assigned:
            self._fail("client", f"{facts.name}: {member} registers what the coordinator assigns")
        if facts.member not in ("", member):
            self._fail("client", f"{facts.name}: {member} takes it from {facts.member}")
        if int(args[4]) != facts.epoch:
            self._fail("E2", f"{facts.name}: registered under {int(args[4])}, not {facts.epoch}")
        self._judge_epoch(facts, epoch)
        self._judge_acks(facts)
        facts.commit_epoch = epoch
        self.effects["registered"] += 1

    def _was_reset(
        self,
        facts: GroupPartitionFacts,
        args: Sequence[bytes],
        answer: int | Sequence[int | bytes],
    ) -> None:
        if isinstance(answer, int) or int(answer[0]) == facts.top_epoch:
            return
        if int(args[2]) != facts.epoch:
            self._fail(
                "E2", f"{facts.name}: a reset counts under {int(args[2])}, not {facts.epoch}"
            )
        self.effects["reset back" if int(answer[1]) < facts.cursor else "reset forward"] += 1
        self._judge_owner(facts, args, "reset")
        self._begin(facts)
        self._judge_epoch(facts, int(answer[0]))
        facts.reset_to.append(facts.cursor)
        facts.was_reset_alone = not args[6]

    def _letters_added(
        self, facts: GroupPartitionFacts, args: Sequence[bytes], answer: Reply
    ) -> None:
        self.letters.added(facts, answer)
        for number in facts.outbox:
            self._letters_since.setdefault((facts.name, number), self._now())

    def _letter_removed(
        self, facts: GroupPartitionFacts, args: Sequence[bytes], answer: Reply
    ) -> None:
        since = self._letters_since.get((facts.name, int(args[2])), self._now())
        if self._now() - since >= PATIENCE_S and self.on_late_letter is not None:
            self.on_late_letter(facts)
        self.letters.removed(facts, answer)

    # ---- time to live ---------------------------------------------------------------------------

    def let_expire(self, ttl_s: float) -> None:
        """Learn that messages live so long from now on; some broker may think so to the end."""
        ttl_ms = round(ttl_s * 1000)
        self._ttl_ms = ttl_ms if self._ttl_ms is None else min(self._ttl_ms, ttl_ms)

    def needs_no_more(self, facts: GroupPartitionFacts, offset: int) -> bool:
        """Say whether a group may continue beyond the message at an offset."""
        return facts.is_done(offset) or self.is_expired(facts, offset)

    def see_clock(self) -> None:
        """Remember Redis's time: what is over by it stays over when the clock is set back."""
        self._latest_ms = max(self._latest_ms, round(self._clock() * 1000))

    def is_expired(self, facts: GroupPartitionFacts, offset: int) -> bool:
        """Say whether the message at an offset has outlived its time."""
        self.see_clock()
        return (
            self._ttl_ms is not None
            and offset < len(facts.log.ids)
            and facts.log.stored_ms[offset] + self._ttl_ms <= self._latest_ms
        )

    # ---- what they have in common ---------------------------------------------------------------

    def _judge_owner(self, facts: GroupPartitionFacts, args: Sequence[bytes], what: str) -> None:
        if int(args[0]) != facts.log.broker_epoch:
            self._fail("G8", f"{facts.name}: a {what} counts under the old {int(args[0])}")

    def _judge_epoch(self, facts: GroupPartitionFacts, epoch: int) -> None:
        if epoch <= facts.top_epoch:
            self._fail("E3", f"{facts.name}: epoch {epoch} after {facts.top_epoch}")
        facts.top_epoch, facts.epoch = max(facts.top_epoch, epoch), epoch

    def _judge_acks(self, facts: GroupPartitionFacts) -> None:
        """Judge what a broker's book has made of the stored one."""
        cursor, acked = facts.cursor, facts.acked
        self._read(facts)
        if facts.cursor < cursor:
            self._fail("S2", f"{facts.name}: the cursor goes back from {cursor} to {facts.cursor}")
        if lost := [offset for offset in acked if not facts.is_stored_done(offset)]:
            self._fail("S2", f"{facts.name}: the ack of {min(lost)} is forgotten")
        new = [o for o in (*range(cursor, facts.cursor), *facts.acked) if o not in acked]
        for offset in new:
            if facts.is_done(offset):
                continue
            if not self.is_expired(facts, offset):
                self._fail("S2", f"{facts.name}: {offset} is acknowledged, and nobody has done it")
                return
            if self.is_in_flight(facts, offset):
                self._fail("S2", f"{facts.name}: {offset} expires while a member has it")
            if self.keeps_expired:
                self._fail("S2", f"{facts.name}: {offset} expires, and is not a dead letter")
            facts.done.add(facts.log.ids[offset])
            self.effects["expired"] += 1

    def _begin(self, facts: GroupPartitionFacts) -> None:
        """Let a group begin at its stored cursor: what it had done with from there on, it has not.

        What is below does not concern it any more.
        """
        ids, held = facts.log.ids, set(facts.outbox.values())
        facts.end_life(max(facts.top_epoch, self.round_of(facts)))
        self.on_begin(facts)
        self._read(facts)
        again = range(facts.cursor, len(ids))
        facts.done.difference_update(ids[offset] for offset in again if offset not in held)
        facts.done.update(ids[: facts.cursor])
        if facts.sent:
            self.letters.begin_again(facts)
        facts.sent.clear()
        facts.letters.clear()
        facts.acked_late.clear()
        self.held_keys.begun(facts)

    def counts(self, facts: GroupPartitionFacts) -> dict[int, int]:
        """Return how often each message was delivered again, as stored."""
        return decode_counts(self._memory.hash(facts.key)[b"redeliveries"])

    def _read(self, facts: GroupPartitionFacts) -> None:
        """Take what is stored."""
        stored = self._memory.hash(facts.key)
        facts.cursor, facts.member = int(stored[b"cursor"]), stored[b"member"].decode()
        facts.epoch = int(stored[b"epoch"])
        facts.acked = frozenset(
            offset
            for start, stop in decode_acks(stored[b"acked"], facts.cursor)
            for offset in range(start, stop)
        )
