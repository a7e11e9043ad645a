"""The records of a whole group, written only while the group itself is stored.

Its effective spec is what makes a group known. All its keys share a tag, so each script can check
whether the spec is still there: whatever a coordinator that has not heard of the group's end still
writes, nothing of a removed group comes back.
"""

from collections.abc import Callable, Sequence

from partq.errors import ConflictError, FencedError, UnknownGroupError
from partq.store.connection import Store
from partq.store.keys import Keys


class Terms:
    """The terms that one coordinator has begun: of two, who began last writes a group's records."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store = store
        self._keys = keys
        self._begun: dict[str, int] = {}

    async def begin(self, group: str) -> None:
        """Begin a term of a group. Every older one is over: its coordinator writes nothing more.

        Raises:
            UnknownGroupError: the group is not stored; nothing is written.
            StoreUnavailableError: no answer; the older terms may be over.
        """
        answer = await self._store.run("begin_term", [self._keys.group_config(group)])
        self._begun[group] = checked(answer, self._keys, group)

    async def named(self, group: str) -> int:
        """Return the term that a write names; where none was begun, that is done first.

        A write that named none would be compared with nothing, however late it arrives.

        Raises:
            UnknownGroupError: the group is not stored; nothing is written.
            StoreUnavailableError: no answer; the older terms may be over.
        """
        if group not in self._begun:
            await self.begin(group)
        return self._begun[group]


class GroupHash:
    """A hash of each group of a queue, written under the terms of one coordinator."""

    def __init__(
        self, store: Store, keys: Keys, key_of: Callable[[str], str], terms: Terms | None
    ) -> None:
        """`key_of`: the key of a group; `terms`: None if the writer is no coordinator."""
        self._store = store
        self._keys = keys
        self._key_of = key_of
        self._terms = terms

    async def write_fields(self, group: str, arguments: Sequence[str | int]) -> None:
        """Write fields of the hash; see the script `write_fields`.

        Raises:
            UnknownGroupError: the group is not stored; nothing is written.
            FencedError: another coordinator has begun; nothing is written.
        """
        await self.run("write_fields", group, arguments)

    async def run(self, script: str, group: str, arguments: Sequence[str | int] = ()) -> int:
        """Run a script that writes the hash, and return its number, which is above 0.

        Raises:
            UnknownGroupError: the group is not stored; nothing is written.
            FencedError: another coordinator has begun; nothing is written.
        """
        term = "" if self._terms is None else await self._terms.named(group)
        keys = [self._key_of(group), self._keys.group_config(group)]
        found = await self._store.run(script, keys, [*arguments, term])
        return checked(found, self._keys, group)


def checked(answer: int, keys: Keys, group: str) -> int:
    """Return what a script has answered that writes for a group as a whole.

    Raises:
        UnknownGroupError: the group is not stored.
        FencedError: another coordinator has begun.
    """
    name = f"{keys.namespace}/{keys.queue}"
    if answer == 0:
        raise UnknownGroupError(
            f"group {group} of queue {name}: not stored, or removed; create it again"
        )
    if answer < 0:
        raise FencedError(
            f"group {group} of queue {name}: another coordinator has begun since this one did; "
            "nothing was written; read everything again, if this one is still to decide"
        )
    return int(answer)


async def erase(store: Store, keys: Keys, group: str, *, born: int) -> None:
    """Take a group off the record, in one step; its cursors belong to the partitions.

    `born` is that of its spec. A repeat changes nothing.

    Raises:
        ConflictError: another group has the name by now; nothing is erased.
    """
    # One that a failover forgets would look like that of a group that is being made.
    if await store.run("erase_group", keys.of_group(group), [born], needs_replica=True) == 0:
        raise ConflictError(
            f"group {group} of queue {keys.namespace}/{keys.queue}: not erased, as it was created "
            f"again since its spec of {born} was read; check whether it is still unwanted"
        )
