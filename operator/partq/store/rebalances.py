"""The last rebalances of a group, for people and tools."""

import json
from collections.abc import Sequence
from dataclasses import asdict

from partq.core.records import Rebalance
from partq.store import groups
from partq.store.connection import Store
from partq.store.keys import Keys

MAX_COUNT = 20
"""How many rebalances of a group are kept."""


class Rebalances:
    """What the groups of one queue went through."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    async def read(self, group: str) -> list[Rebalance]:
        """Return the last rebalances, the newest last."""
        text = await self._store.read("HGET", self._keys.rebalances(group), "last")
        return [Rebalance(**each) for each in json.loads(text)] if text else []

    async def write(self, group: str, rebalances: Sequence[Rebalance]) -> None:
        """Write the rebalances, the newest last, in the place of all that are there.

        Raises:
            UnknownGroupError: the group is not on record; nothing is written.
        """
        last = [asdict(each) for each in rebalances[-MAX_COUNT:]]
        args = (1, "last", json.dumps(last))
        key = self._keys.rebalances(group)
        await groups.write_fields(self._store, self._keys, group, key, args)
