"""What brokers answer to the calls of handoffs: pauses, drains, commits, cancels (E2 to E4)."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from partq.broker.broker import Broker
from partq.broker.partition.consumed_partition import ConsumedPartition, FlowPort
from partq.core.cursor.cursor import GroupCursor
from partq.core.cursor.redelivery_queue import RedeliveryQueue
from partq.core.lanes.lane_book import LaneBook
from partq.core.model import PartitionId
from partq.core.ranges import Ranges
from partq.lab.simulate.machine.network import Plain
from partq.lab.simulate.oracle.facts import GROUP, GroupPartitionFacts, Token, facts_name
from partq.lab.simulate.oracle.isolation import Isolation
from partq.lab.simulate.oracle.movement import Movement
from partq.lab.simulate.oracle.records import Records
from partq.wire.calls.bodies import CommitItem, Commits, DrainItem, PauseItem

_Offsets = RedeliveryQueue | set[int] | tuple[()]

_LISTS: Final = {"pause": "pauses", "drain": "drains", "commit": "commits", "cancel": "cancels"}


@dataclass(slots=True)
class _PauseTimes:
    until: float
    drain_until: float


class HandoffCalls:
    """Judges each call of a coordinator by what its broker answers, and by what is stored."""

    def __init__(
        self,
        records: Records,
        movement: Movement,
        isolation: Isolation,
        *,
        fail: Callable[[str, str], None],
        note: Callable[[str], None],
        now: Callable[[], float],
    ) -> None:
        self.commit_count = 0
        self.moves: Counter[str] = Counter()
        """How often each partition has left a member."""
        self.pauses_s: list[float] = []
        """How long each partition that was handed over belonged to nobody."""
        self._isolation = isolation
        self._fail = fail
        self._note = note
        self._broker: Broker | None = None
        """Which has just answered."""
        self._records = records
        self._movement = movement
        self._now = now
        self._pauses: dict[tuple[str, int, int], _PauseTimes] = {}
        self._paused_at: dict[str, float] = {}
        """Since when a partition is paused that no flow has been given yet."""
        self._committed: set[tuple[str, int]] = set()
        self._sources: dict[tuple[str, int], tuple[ConsumedPartition, FlowPort | None]] = {}
        """Whose flow was bound as a commit came."""
        self._cut: set[tuple[str, int]] = set()
        """Commits that were stored while the source was bound."""
        records.on_commit = self._commit_stored

    def assigned(self, name: str) -> None:
        """Take the news that a broker gives a partition to a member."""
        if (paused_at := self._paused_at.pop(name, None)) is not None:
            self.pauses_s.append(self._now() - paused_at)

    def called(
        self, broker: Broker, group: str, kind: str, asked: Plain
    ) -> Callable[[Plain], None]:
        """Return the listener for answers to calls that have reached a broker."""
        began = self._now()
        if kind == "parts":
            return self._parts_moved
        if kind == "commit":
            self._note_sources(broker, group, asked)
        elif kind == "pause":
            for item in asked.pauses:
                name = facts_name(item.partition, group)
                self._isolation.asked_to_pause(name, item.broker_epoch, item.attempt)
                if group == GROUP:
                    self._movement.asked_to_pause(name, item.attempt)
        items = {item.partition: item for item in getattr(asked, _LISTS[kind])}

        def answered(answer: Plain) -> None:
            self._broker = broker
            for result in answer["results"]:
                if "error" not in result:
                    name = facts_name(result["partition"], group)
                    judge(name, items[result["partition"]], result, began)

        judge = getattr(self, f"_judge_{kind}")
        return answered

    def _parts_moved(self, answer: Mapping[str, Sequence[Mapping[str, object]]]) -> None:
        for result in answer["results"]:
            if "error" not in result:
                self.commit_count += 1
                self.moves[f"{result['partition']}/{result['part']}"] += 1

    def asked_to_yield(self, names: Sequence[str]) -> None:
        """Take a coordinator's call that makes a broker give partitions up."""
        for name in names:
            self._isolation.asked_to_yield(name, self._records.logs[name].broker_epoch)

    def _judge_pause(self, name: str, item: PauseItem, result: Plain, began: float) -> None:
        key = (name, item.broker_epoch, item.attempt)
        known = self._pauses.get(key)
        # A pause is in force from the call on; its answer waits for the audit record.
        if known is None:
            known = self._pauses[key] = _PauseTimes(began, began + item.drain_ms / 1000)
            self._paused_at.setdefault(name, began)
        elif began > known.until + 0.001:
            self._fail("attempts", f"{name}: attempt {item.attempt} is paused again")
        known.until = max(known.until, began + item.lease_ms / 1000)
        self._judge_drain(name, item, result, began)

    def _judge_drain(self, name: str, item: DrainItem, result: Plain, began: float) -> None:
        facts = self._records.group_partitions[name]
        log = facts.log
        if not result["is_drained"] or log.is_torn or log.broker_epoch != item.broker_epoch:
            return
        if item.epoch <= facts.old_epoch:
            return  # it had drained before the group began again
        waiting = self._waiting(self._broker, facts)
        stop = result["last_delivered"] + 1
        # What was given back is in nobody's hands: it is redelivered at the target, or waits in the
        # stored outbox, which stays. The audit record takes time between a look and its answer:
        # by then it may have expired, or its application may have finished it after all. The book
        # says so before the store does, and the commit stores it.
        apart = {*facts.acked, *facts.outbox.values(), *facts.acked_late}
        rest = [
            offset
            for offset in range(facts.cursor, stop)
            if not (offset in apart or offset in waiting or self._records.is_expired(facts, offset))
        ]
        if rest:
            self._fail(
                "E4",
                f"{name}: drained up to {result['last_delivered']}, and stored are acks "
                f"up to {facts.cursor}",
            )

    def acked(self, broker: Broker, name: str, token: Token, offsets: Sequence[int]) -> None:
        """Take an ack that has reached a broker: it may be of what was given back before."""
        facts = self._records.group_partitions[name]
        if token == (facts.log.broker_epoch, facts.top_epoch):
            waiting = self._waiting(broker, facts)
            facts.acked_late.update(offset for offset in offsets if offset in waiting)

    @staticmethod
    def _waiting(broker: Broker | None, facts: GroupPartitionFacts) -> _Offsets:
        """Return what was given back, and waits at a broker to be redelivered."""
        owned = broker.owned.get(PartitionId.parse(facts.log.name)) if broker else None
        found = owned.groups.get(facts.group) if owned is not None else None
        book = found.book if found is not None else None
        if isinstance(book, LaneBook):
            held = Ranges(book.delivered(book.cursor, book.position))
            undone = book.undone(book.cursor, book.sent_end)
            parts = (part for each in undone for part in held.outside(*each))
            return {offset for part in parts for offset in range(*part)}
        return book.waiting if isinstance(book, GroupCursor) else ()

    def _judge_cancel(self, name: str, item: DrainItem, result: Plain, began: float) -> None:
        self._pauses.pop((name, item.broker_epoch, item.attempt), None)
        self._paused_at.pop(name, None)

    def _judge_commit(self, name: str, item: CommitItem, result: Plain, began: float) -> None:
        if (name, item.attempt) in self._committed:
            return
        self._committed.add((name, item.attempt))
        self.commit_count += 1
        self.moves[name] += bool(item.source)
        self._note(
            f"committed {name} from {item.source or 'nobody'} to "
            f"{item.target or 'nobody'}, attempt {item.attempt} {item.forced}"
        )
        pause = self._pauses.get((name, item.broker_epoch, item.attempt))
        needs_pause = item.source and (not item.forced or (name, item.attempt) in self._cut)
        if needs_pause and (pause is None or pause.until <= began):
            self._fail("E4", f"{name}: committed without a pause in force")
        if result["was_forced"] and (pause is None or self._now() < pause.drain_until):
            self._fail("E4", f"{name}: cut off before its drain was over")

    def _note_sources(self, broker: Broker, group: str, asked: Commits) -> None:
        for item in asked.commits:
            owned = broker.owned.get(PartitionId.parse(item.partition))
            found = owned.groups.get(group) if owned is not None else None
            if found is not None:
                key = facts_name(item.partition, group), item.attempt
                self._sources.setdefault(key, (found, found.flow))

    def _commit_stored(self, name: str, attempt: int, source: str, target: str) -> None:
        consumed, flow = self._sources.get((name, attempt), (None, None))
        is_bound = flow is not None and consumed is not None and consumed.flow is flow
        if is_bound:
            self._cut.add((name, attempt))
        if name in self._records.logs:
            self._movement.committed(name, attempt, source, target, is_bound=is_bound)
