"""What a member registers and gives back, under the epochs that it has seen."""

import asyncio
import logging

from partq.aio import resolve
from partq.client.consume.membership import Membership
from partq.client.registration.registration_calls import RegistrationCalls
from partq.core.model import PartitionId
from partq.errors import FencedError, PartqError, UnavailableError
from partq.wire.calls.registration import ConfiguredPartitions, Registered

log = logging.getLogger("partq.client")

CALL_TIMEOUT_S = 10.0
"""How long a call is repeated until a broker judges it."""
HAS_LEFT = "the consumer has left or was closed: make another one"
MAX_TRIES = 5
"""How often a registration looks again because the partition has changed hands meanwhile."""


class Registrations:
    """The partitions that one process of a member registers, and the node that it says it is.

    Args:
        calls: of this process.
        membership: knows what the member has.
    """

    def __init__(self, calls: RegistrationCalls, membership: Membership) -> None:
        self._calls = calls
        self._membership = membership
        self._node: tuple[int, int] | None = None
        """Source count and number, as they were said; None: they were not."""
        self._shown_epochs: dict[PartitionId, int] = {}
        """Of each partition in the group, as it was shown last."""
        self._registered_epochs: dict[PartitionId, int] = {}
        self._under_way: set[asyncio.Future[None]] = set()
        """One for each registration that has not ended."""

    @property
    def held(self) -> frozenset[PartitionId]:
        """What it has registered and nobody has taken back."""
        return frozenset(PartitionId(*each) for each in self._membership.held)

    # ---- the node ----

    async def set_node(self, source_count: int, node_id: int, timeout_s: float) -> None:
        """Say which node of how many this is, again and again if need be; raises as the call."""
        await self._calls.set_node(source_count, node_id, timeout_s)
        self._node = source_count, node_id

    async def clear_node(self, timeout_s: float) -> None:
        """Free the number of the node, if one was said; raises as the call."""
        node, self._node = self._node, None
        if node is not None:
            await self._calls.clear_node(timeout_s)

    # ---- partitions ----

    async def query(self) -> ConfiguredPartitions:
        """Return what the brokers say of all partitions, and note what others hold by now.

        Raises:
            UnavailableError: no broker has answered within 10 s.
            SourceCountError, NodeInUseError: this node was forgotten while it was not connected,
                and another one has taken its number since.
        """
        asked = self.held
        answer = await self._calls.query(CALL_TIMEOUT_S)
        member = self._membership.member
        found = {PartitionId.parse(name): each for name, each in answer.partitions.items()}
        self._shown_epochs = {partition: each.epoch for partition, each in found.items()}
        for partition in asked:
            row = found.get(partition)
            if row is not None and row.state and row.member != member:
                self._lose(partition, row.member)
        if self._node and member not in answer.nodes and not self._is_leaving():
            # It was not listed for a while: what it had said is forgotten.
            await self._calls.set_node(*self._node, CALL_TIMEOUT_S)
        return answer

    async def register(self, place: PartitionId, offset: int, *, give_back_s: float) -> Registered:
        """Take a partition; raises as `ClientAssignedConsumer.register`.

        `give_back_s`: if the member leaves before the answer, the partition is given back, and what
        is in flight is waited for at most this many seconds.
        """
        if self._is_leaving():
            raise RuntimeError(HAS_LEFT)
        ended = asyncio.get_running_loop().create_future()
        self._under_way.add(ended)
        try:
            answer = await self._judged(place, offset)
            if self._is_leaving():
                await self._give_back(place, give_back_s)
                raise RuntimeError(HAS_LEFT)
        finally:
            self._under_way.discard(ended)
            resolve(ended, None)
        self._registered_epochs[place] = answer.epoch
        self._membership.hold(place)
        return answer

    async def unregister(self, place: PartitionId, timeout_s: float) -> bool:
        """Give a partition back; returns and raises as `ClientAssignedConsumer.unregister`."""
        epoch = self._epoch_of(place) if place in self.held else 0
        epoch = epoch or await self._recorded_epoch(place)
        if not epoch:
            self._forget(place)
            return False
        clock = asyncio.get_running_loop().time
        until = clock() + timeout_s
        tries = MAX_TRIES
        while epoch:
            left = until - clock()
            try:
                answer = await self._calls.unregister(
                    place,
                    epoch=epoch,
                    wait_s=left,
                    is_forced=left <= 0,
                    timeout_s=CALL_TIMEOUT_S,
                )
            except FencedError as error:
                before, epoch = epoch, await self._recorded_epoch(place)
                tries -= 1
                if epoch == before or not tries:
                    raise
                if not epoch:  # it is somebody else's by now
                    log.info("%s is not registered any more: %s", place, error)
                continue
            if answer.is_free:
                self._shown_epochs[place] = answer.epoch
                break
        self._forget(place)
        return True

    async def give_all_back(self, timeout_s: float) -> None:
        """Give back what it has, and return when registrations under way have ended, too.

        The member leaves: each of these gives back what it is answered. What cannot be given back
        is logged.
        """
        await asyncio.gather(
            *(self._give_back(place, timeout_s) for place in self.held), *self._under_way
        )

    # ---- inside ----

    def _is_leaving(self) -> bool:
        return self._membership.is_leaving

    async def _judged(self, place: PartitionId, offset: int) -> Registered:
        """Register, and say that the member has left if it has lost its connections by that."""
        try:
            if place not in self._shown_epochs:
                await self.query()
            return await self._register(place, offset, MAX_TRIES)
        except (RuntimeError, UnavailableError) as error:
            if not self._is_leaving():
                raise
            raise RuntimeError(
                f"{HAS_LEFT}; no broker has answered before: if partition {place} is registered, "
                "it is free after the rebalance delay"
            ) from error

    async def _register(self, place: PartitionId, offset: int, tries: int) -> Registered:
        epoch = self._shown_epochs.get(place, 0)
        try:
            return await self._calls.register(
                place, epoch=epoch, offset=offset, timeout_s=CALL_TIMEOUT_S
            )
        except FencedError:
            # It was registered, unregistered or reset since it was shown: nothing is changed.
            await self.query()
            if tries <= 1 or self._shown_epochs.get(place) == epoch:
                raise
        return await self._register(place, offset, tries - 1)

    async def _give_back(self, place: PartitionId, timeout_s: float) -> None:
        try:
            await self.unregister(place, timeout_s)
        except (PartqError, RuntimeError) as error:
            log.warning(
                "%s could not be given back, it is free after the rebalance delay: %s", place, error
            )

    def _epoch_of(self, place: PartitionId) -> int:
        """Return the latest epoch of a partition that this member has seen as its own."""
        bound = (each.token[1] for each in self._membership.assigned if each.partition == place)
        return max(self._registered_epochs.get(place, 0), *bound, 0)

    async def _recorded_epoch(self, place: PartitionId) -> int:
        """Return the epoch under which the member is recorded for a partition; 0: it is not."""
        row = (await self._calls.query(CALL_TIMEOUT_S)).partitions.get(str(place))
        return row.epoch if row is not None and row.member == self._membership.member else 0

    def _lose(self, place: PartitionId, holder: str) -> None:
        if place in self._membership.partitions:
            return  # a broker delivers it to us: the answer was older
        log.warning("%s is not registered any more: %s has it", place, holder or "nobody")
        self._forget(place)

    def _forget(self, place: PartitionId) -> None:
        self._registered_epochs.pop(place, None)
        self._membership.forget(place)
