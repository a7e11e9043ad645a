"""What Redis holds for a group as a whole, written only while the group itself is stored.

Its effective spec is what makes a group known. All its keys share a tag, so each script can look
whether the spec is still there: whatever a coordinator that has not heard of the group's end still
writes, nothing of a removed group comes back.
"""

from collections.abc import Sequence

from partq.errors import ConflictError, UnknownGroupError
from partq.store.connection import Store
from partq.store.keys import Keys


async def write_fields(
    store: Store, keys: Keys, group: str, key: str, arguments: Sequence[str | int]
) -> None:
    """Write fields of a hash of a group; see the script `write_fields`.

    Raises:
        UnknownGroupError: the group is not stored; nothing is written.
    """
    await run(store, keys, group, "write_fields", key, arguments)


async def run(
    store: Store, keys: Keys, group: str, script: str, key: str, arguments: Sequence[str | int] = ()
) -> int:
    """Run a script that writes a hash of a group, and return its number, which is above 0.

    Raises:
        UnknownGroupError: the group is not stored; nothing is written.
    """
    found = int(await store.run(script, [key, keys.group_config(group)], arguments))
    if found == 0:
        name = f"{keys.namespace}/{keys.queue}"
        raise UnknownGroupError(
            f"group {group} of queue {name}: not stored, or removed; create it again"
        )
    return found


async def erase(store: Store, keys: Keys, group: str, *, born: int) -> None:
    """Take a group off the record, in one step; its cursors belong to the partitions.

    `born` is that of its spec. A repeat changes nothing.

    Raises:
        ConflictError: another group has the name by now; nothing is erased.
    """
    if await store.run("erase_group", keys.of_group(group), [born]) == 0:
        raise ConflictError(
            f"group {group} of queue {keys.namespace}/{keys.queue}: not erased, as it was made "
            f"again since its spec of {born} was read; look whether it is still unwanted"
        )
