"""The brokers' leases, and the index of which broker owns which partition."""

import json
from collections.abc import Sequence
from dataclasses import replace

from partq.core.model import BrokerId, PartitionId
from partq.core.records import (
    LANES,
    PARTS,
    RESCALE,
    SESSIONS,
    STATES,
    TURNS,
    LeaseIndex,
    LeaseRecord,
)
from partq.errors import FencedError
from partq.store.connection import Store
from partq.store.keys import Keys
from partq.store.pipelined_connection import Reply

LEASE_FEATURES: tuple[str, ...] = (RESCALE, LANES, STATES, PARTS, SESSIONS, TURNS)
"""What brokers of this version can do beside what those of every version can: other brokers and the
coordinator read it in the lease. Clients ask for `FEATURES` of `wire/frame.py`."""
_PEER = "peer_token"
_MAX_TRIES = 5
"""How often a first renewal is tried while other processes take the name over before it."""


class Leases:
    """The leases of one queue's brokers."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._key = keys.brokers()
        self._lives: dict[tuple[BrokerId, str], int] = {}

    async def renew(self, broker: BrokerId, incarnation: str, ttl_s: float, url: str) -> int:
        """Renew a lease and return its counter.

        The first renewal of an incarnation takes the broker's name over from all before it. One
        that had no answer may arrive at any time: it changes nothing once another has gone through.

        Raises:
            FencedError: a later incarnation has taken the name over; this one must end.
        """
        value = json.dumps({"incarnation": incarnation, "ttl_s": ttl_s, "url": url})
        life = self._lives.get((broker, incarnation), 0)
        answer: Reply = -1
        for _ in range(_MAX_TRIES):
            before = 0 if life else await self._read_life(broker)
            args = (broker, life, value, before, " ".join((incarnation, *LEASE_FEATURES)))
            answer = await self._store.run("renew_lease", [self._key], args)
            if answer != -1:
                break
        if answer in (0, -1):
            raise FencedError(
                f"broker {broker}: a later process has taken over its name; incarnation "
                f"{incarnation} must end"
            )
        self._lives[broker, incarnation], counter = answer
        return int(counter)

    async def _read_life(self, broker: BrokerId) -> int:
        return int(await self._store.read("HGET", self._key, f"life:{broker}") or 0)

    async def release(self, broker: BrokerId, incarnation: str) -> None:
        """Remove a lease that this process has renewed, as the broker shuts down."""
        life = self._lives.get((broker, incarnation), 0)
        await self._store.run("release_lease", [self._key], [broker, life])

    async def record_owner(self, partition: PartitionId, broker: BrokerId | None) -> None:
        """Write into the index who has claimed a partition; None: nobody owns it."""
        field = f"owner:{partition}"
        args = (1, field, broker) if broker else (0, field)
        await self._store.run("write_fields", [self._key], args)

    async def peer_token(self, drawn: str) -> str:
        """Return the token by which brokers of other queues of this Redis know themselves here.

        `drawn` becomes it, if none is stored yet. A process that can read it can read and write
        all that the queue stores anyway: it opens nothing more.
        """
        return str(await self._store.run("keep_field", [self._key], [_PEER, drawn]), "utf-8")

    async def read_peer_token(self) -> str | None:
        """Return that token; None: no broker of the queue has run yet."""
        found = await self._store.read("HGET", self._key, _PEER)
        return found.decode() if found else None

    async def write_usage(self, number: int, size_bytes: int) -> bool:
        """Write the bytes of all logs of the queue.

        Returns whether they are stored: a sum of this `number`, or of a later one, stays.
        """
        return bool(await self._store.run("write_usage", [self._key], (number, size_bytes)))

    async def read_usage(self) -> tuple[int, int] | None:
        """Return the number and the bytes that were written last; None: nothing was."""
        text = await self._store.read("HGET", self._key, "usage")
        if text is None:
            return None
        number, size_bytes = text.split()
        return int(number), int(size_bytes)

    async def read(self) -> LeaseIndex:
        """Return every lease, over or not, and the index of owners."""
        flat = [value.decode() for value in await self._store.read("HGETALL", self._key)]
        fields = dict(zip(flat[::2], flat[1::2], strict=True))
        leases: dict[BrokerId, LeaseRecord] = {}
        owners: dict[PartitionId, BrokerId] = {}
        for field, value in fields.items():
            kind, _, name = field.partition(":")
            if kind == "owner":
                owners[PartitionId.parse(name)] = BrokerId(value)
            elif kind == "lease":
                features = fields.get(f"features:{name}", "")
                counter = int(fields[f"counter:{name}"])
                leases[BrokerId(name)] = _lease_of(value, counter, features.split())
        return LeaseIndex(leases, owners)


def _lease_of(text: str, counter: int, features: Sequence[str]) -> LeaseRecord:
    """Read a lease; `features`: those of an incarnation, which is named first.

    They are a field beside the lease, as earlier versions take no lease with more in it. They write
    no features, so what is there may be that of a broker which had the name before.
    """
    lease = LeaseRecord(counter=counter, **json.loads(text))
    is_its_own = features[:1] == [lease.incarnation]
    return replace(lease, features=frozenset(features[1:])) if is_its_own else lease
