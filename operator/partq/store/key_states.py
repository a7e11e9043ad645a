"""States of keys: what the members of a group have left with their acks, by key."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple

from partq.core.model import BrokerEpoch, PartitionId
from partq.store.codec import encode_states
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.refusals import check_gate

SCAN_COUNT = 50
"""States that one step of a scan asks for: some MB, if all are as large as may be."""
MAX_SCANS = 100_000
"""Steps of one scan."""
FIRST_PAGE = b"0"


class StatesPage(NamedTuple):
    """Some of a group's states in a partition."""

    states: dict[str, bytes]
    next: bytes
    """Where the next page begins; empty: it was the last."""


class KeyStates:
    """The states of one queue. `Partitions.flush` writes them, with the acks."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def read(self, partition: PartitionId, group: str, key: str) -> bytes | None:
        """Return the state of a key; None: it has none.

        Raises:
            StoreUnavailableError: no answer.
        """
        state = await self._store.read("HGET", self._keys.states(partition, group), key)
        return None if state is None else bytes(state)

    async def count_without(self, partition: PartitionId, group: str, key: str) -> int:
        """Return how many other keys of a group have a state in a partition.

        Raises:
            StoreUnavailableError: no answer.
        """
        name = self._keys.states(partition, group)
        count, has_key = await self._store.read_all(("HLEN", name), ("HEXISTS", name, key))
        return int(count) - int(has_key)

    async def read_sizes(
        self, partition: PartitionId, group: str, keys: Sequence[str]
    ) -> list[int | None]:
        """Return how many bytes the state of each key has; None: it has none, or an empty one.

        Raises:
            StoreUnavailableError: no answer.
        """
        if not keys:
            return []
        name = self._keys.states(partition, group)
        sizes = await self._store.read_all(*(("HSTRLEN", name, key) for key in keys))
        return [int(size) or None for size in sizes]

    async def read_page(self, partition: PartitionId, group: str, after: bytes) -> StatesPage:
        """Return some of a group's states. `after`: what the last page calls next; `0`: the first.

        Of states that are written or removed meanwhile some may be missing, or come twice.

        Raises:
            StoreUnavailableError: no answer.
        """
        name = self._keys.states(partition, group)
        at, flat = await self._store.read("HSCAN", name, after, "COUNT", SCAN_COUNT)
        states = {
            key.decode(): bytes(state) for key, state in zip(flat[::2], flat[1::2], strict=True)
        }
        return StatesPage(states, b"" if at == FIRST_PAGE else bytes(at))

    async def scan(self, partition: PartitionId, group: str) -> AsyncIterator[dict[str, bytes]]:
        """Iterate over all states, some at a time; none comes twice.

        States that are written or removed meanwhile may be missing, or be as they were.

        Raises:
            StoreUnavailableError: no answer.
        """
        at = FIRST_PAGE
        seen: set[str] = set()
        for _ in range(MAX_SCANS):
            states, at = await self.read_page(partition, group, at)
            part = {key: state for key, state in states.items() if key not in seen}
            seen.update(part)
            if part:
                yield part
            if not at:
                return

    async def carry(
        self,
        partition: PartitionId,
        group: str,
        states: Mapping[str, bytes],
        *,
        broker_epoch: BrokerEpoch,
        born: int,
        gate: str,
        is_first: bool,
    ) -> None:
        """Write states of predecessors to a partition whose gate is closed, before it opens.

        `born` and `gate` are of the group's record, as of `Seals.open_gate`. `is_first`: what an
        earlier try has written is removed.

        Raises:
            FencedError: another broker has claimed the partition; nothing is written.
            ConflictError: a reset has closed the gate since; nothing is written.
            UnknownGroupError: the partition has no such group, or another one of the name.
            StoreUnavailableError: no answer; begin again.
        """
        answer = await self._store.run(
            "carry_states",
            self._names(partition, group),
            [broker_epoch, group, born, gate, int(is_first), *encode_states(states)],
            needs_replica=True,
        )
        check_gate(answer, partition, group, broker_epoch=broker_epoch, gate=gate)

    async def remove_moved(
        self, predecessor: PartitionId, group: str, keys: list[str], *, generation: int
    ) -> None:
        """Remove states from a predecessor that the change `generation` has moved away.

        Raises:
            StoreUnavailableError: no answer; a repeat is harmless.
        """
        if keys:
            await self._store.run(
                "remove_states",
                self._names(predecessor, group),
                [generation, *encode_states(dict.fromkeys(keys))],
            )

    def _names(self, partition: PartitionId, group: str) -> list[str]:
        meta, cursor, _ = self._keys.of_cursor(partition, group)
        return [meta, cursor, self._keys.states(partition, group)]
