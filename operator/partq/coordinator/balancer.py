"""Keeps every partition owned by a broker, and the brokers' shares even."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any

from partq.aio import cancel_and_wait
from partq.coordinator.group.queue_observation import QueueObservation
from partq.coordinator.ports import AddressBook, BrokerAdmin
from partq.core.brokers import (
    BrokerMove,
    BrokerRules,
    LeaseSeen,
    ObservedBroker,
    balance,
    first_claims,
    watch,
)
from partq.core.model import BrokerId, PartitionId
from partq.core.records import LeaseIndex, LeaseRecord
from partq.errors import PartqError, UnknownPartitionError

_log = logging.getLogger(__name__)


def leased_address(broker: BrokerId, lease: LeaseRecord) -> str:
    """Return where a broker says itself that it is: for a store that nobody else writes."""
    return lease.url


class Balancer:
    """Asks brokers to claim and to yield; one step at a time, in a task that `close` ends."""

    def __init__(
        self,
        brokers: BrokerAdmin,
        *,
        clock: Callable[[], float],
        on_change: Callable[[], None],
        on_missing: Callable[[], None],
        address_of: AddressBook = leased_address,
    ) -> None:
        """`on_missing`: told that the store has no record of a partition."""
        self._brokers = brokers
        self._address_of = address_of
        self._clock = clock
        self._on_change = on_change
        self._on_missing = on_missing
        self._watched: dict[BrokerId, ObservedBroker] = {}
        self._urls: dict[BrokerId, str] = {}
        self._moved_at_ms: int | None = None
        self._work: asyncio.Task[None] | None = None

    def observe(self, index: LeaseIndex) -> dict[BrokerId, str]:
        """Take note of the leases, and return the living brokers with their URLs."""
        leases = {
            broker: LeaseSeen(lease.incarnation, lease.counter, round(lease.ttl_s * 1000))
            for broker, lease in index.leases.items()
        }
        owners = set(index.owners.values())
        self._watched = watch(self._watched, leases, owners, self._now_ms())
        self._urls = {
            broker: self._address_of(broker, index.leases[broker])
            for broker, seen in self._watched.items()
            if seen.is_living
        }
        return self._urls

    @property
    def urls(self) -> Collection[str]:
        """The living brokers' URLs."""
        return self._urls.values()

    def url_of(self, broker: BrokerId) -> str | None:
        """Return a living broker's URL."""
        return self._urls.get(broker)

    def step(
        self, queue: QueueObservation, index: LeaseIndex, rules: BrokerRules, *, is_quiet: bool
    ) -> None:
        """Start what is to be done, unless something is under way.

        `is_quiet`: no group has a handoff under way or misses a member.
        """
        if self._work is not None:
            if not self._work.done():
                return
            self._work.result()  # a mistake of ours is not passed over
        held = {
            broker: queue.states[broker].partitions if broker in queue.states else None
            for broker in self._urls
        }
        now_ms = self._now_ms()
        claims = first_claims(
            queue.partitions,
            self._watched,
            held,
            index.owners,
            rules,
            now_ms,
            queue.succession,
        )
        if claims:
            self._begin(self._claim(claims))
            return
        gap_ms = None if self._moved_at_ms is None else now_ms - self._moved_at_ms
        if not is_quiet or (gap_ms is not None and gap_ms < rules.move_gap_ms):
            return
        moves = balance(queue.partitions, self._watched, held, rules, now_ms, queue.succession)
        if moves:
            self._moved_at_ms = now_ms
            self._begin(self._move(moves))

    async def close(self) -> None:
        """Stop; what a broker has yielded, the next step or the brokers themselves claim."""
        await cancel_and_wait(self._work)

    def _now_ms(self) -> int:
        return round(self._clock() * 1000)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._work = asyncio.create_task(work, name="balance brokers")
        self._work.add_done_callback(lambda _: self._on_change())

    async def _claim(self, claims: Mapping[BrokerId, Sequence[PartitionId]]) -> None:
        await asyncio.gather(*(self._claim_at(*claim) for claim in claims.items()))

    async def _claim_at(self, broker: BrokerId, partitions: Sequence[PartitionId]) -> None:
        _log.info("broker %s claims %s", broker, ", ".join(map(str, partitions)))
        try:
            answers = await self._brokers.claim(self._urls.get(broker, ""), partitions)
        except PartqError as error:
            _log.warning("broker %s did not answer a claim: %s", broker, error)
            return
        for answer in answers:
            if answer.code:
                _log.info("partition %s was not claimed: %s", answer.partition, answer.message)
            if answer.code == UnknownPartitionError.code:
                self._on_missing()

    async def _move(self, moves: Sequence[BrokerMove]) -> None:
        by_source: dict[BrokerId, list[BrokerMove]] = defaultdict(list)
        for move in moves:
            by_source[move.source].append(move)
        await asyncio.gather(*(self._move_from(*leg) for leg in by_source.items()))

    async def _move_from(self, source: BrokerId, moves: Sequence[BrokerMove]) -> None:
        targets = {move.partition: move.target for move in moves}
        try:
            answers = await self._brokers.yield_(self._urls.get(source, ""), list(targets))
        except PartqError as error:
            _log.warning("broker %s did not answer a yield: %s", source, error)
            return
        claims: dict[BrokerId, list[PartitionId]] = defaultdict(list)
        for answer in answers:
            if answer.code:
                _log.info("partition %s was not yielded: %s", answer.partition, answer.message)
            elif answer.partition in targets:
                claims[targets[answer.partition]].append(answer.partition)
        await self._claim(claims)
