"""The stored config of the group `workers`, which a test takes away and puts back."""

from contextlib import asynccontextmanager

from partq.testing import eventually


@asynccontextmanager
async def without_rules(broker):
    """Have the queue name a group whose config is not stored."""
    key = broker.keys.group_config("workers")
    await broker.store.read("RENAME", key, f"{key}:away")

    async def are_gone():
        await broker.refresh()
        return "workers" not in broker.config.dead_letters

    await eventually(are_gone, "they are read again")
    assert broker.config.groups == {"workers"}
    yield
    await broker.store.read("RENAME", f"{key}:away", key)
    await broker.refresh()
