"""Makes and updates a queue's records in the store, before its brokers serve it."""

import asyncio
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence

from partq.coordinator.chunks import in_chunks
from partq.coordinator.cursors import read_births, remove_cursors
from partq.coordinator.queue_records import ConfigWriter, LifeRegistry, QueueRecords
from partq.coordinator.record_sync import create_partitions
from partq.coordinator.rules import group_start
from partq.core.model import PartitionId, Start
from partq.core.records import ConfigRecord
from partq.errors import ConflictError, SettingsError, UnknownGroupError, UnknownQueueError
from partq.wire.effective_specs import EffectiveSpec

MAX_ADD_TRIES = 5
"""How often cursors are added, when coordinators fence the partitions meanwhile."""


class OtherLifeError(SettingsError):
    """The keys of this name in the store are those of another resource."""


async def provision(
    records: QueueRecords,
    *,
    name: str,
    uid: str,
    partition_count: int,
    spec: EffectiveSpec,
    groups: Mapping[str, EffectiveSpec],
    keeps_others: bool,
    repairs: bool,
) -> tuple[str, ...]:
    """Make or update the records of a queue and its groups, and return those left out.

    May be repeated at any time. Stored groups that are not in `groups` are kept with
    `keeps_others`; else they are taken off the record, and the coordinator drops their cursors.
    One whose removal was cut short is not kept.

    Args:
        records: of the queue.
        name: NAMESPACE/QUEUE, for messages.
        uid: of this life of the queue.
        partition_count: what the spec says. Where the queue has another one, the coordinator
            changes it.
        spec: the queue's effective spec; `groups` is filled in here.
        groups: every group's effective spec; with the `uid` of its resource, where it has one.
        keeps_others: whether groups stay that are not in `groups`.
        repairs: whether an earlier call may have been cut short. A group that it had begun, and
            that nobody wants any more, counts as stored: it has cursors, which hold messages
            back, though the queue does not name it.

    Raises:
        OtherLifeError: another life of the queue's name is the current one, or this one was given
            up.
        ConflictError: the queue or its groups were changed meanwhile; a repeat does the rest.
        StoreUnavailableError: half of it may be done; a repeat does the rest.
    """
    configs, partitions = records.configs, records.partitions
    spec = {**spec, "partitions": partition_count}
    await _register(records.lives, name, uid)
    layout = (await records.layouts.create_queue({1: partition_count})).layout
    ids = layout.all_partitions()
    known = await configs.read_queue()
    stored = await _read_specs(configs, groups)
    if known is None:
        await create_partitions(partitions, records.seals, layout)
    # The stored group is removed first, as if each had been seen alone, and by the same steps.
    replaced = _find_replaced(groups, stored, known)
    known = await _erase_replaced(configs, replaced, stored, known)
    new = [group for group in groups if known is None or group not in known.groups]
    # A group without a spec is new. Cursors that it has all the same are those of one that had its
    # name, whose removal was cut short.
    unspecified = {group for group in new if stored[group] is None}
    looks = repairs or replaced or (unspecified and known is not None)
    read = await partitions.read_many(ids) if looks else {}
    births = await read_births(partitions, read, unspecified)
    await remove_cursors(partitions, read, unspecified, births)
    found = {group for each in read.values() for group in each.groups} if repairs else set()
    left_out = tuple(sorted((found | set(known.groups if known else ())) - groups.keys()))
    # Specs come first: by them a coordinator tells the cursors of a group that is being made from
    # those of one that is gone.
    await _write_specs(configs, groups, stored, known)
    if new:
        starts = {group: group_start(groups[group]) for group in new}
        await _add_groups(records, starts, known)
    if keeps_others:
        left_out = await _with_spec(configs, left_out)
    else:
        await _erase_groups(configs, await _read_specs(configs, left_out), known)
    # The groups become known last: brokers serve a group when all its cursors are there.
    names = sorted({*groups, *(left_out if keeps_others else ())})
    # Of a group that was never named, too: at a new generation coordinators fence late additions.
    is_erased = bool(left_out) and not keeps_others
    if known is None or known.spec != {**spec, "groups": names} or is_erased:
        await _write_queue(configs, spec, names, known)
    return left_out


async def remove_group(
    configs: ConfigWriter, group: str, *, is_dry_run: bool, born: int | None = None
) -> None:
    """Take one group off the records of a queue, as `provision` does; its cursors go later.

    The coordinator drops them. May be repeated at any time: it does what an earlier call has left.
    With `is_dry_run` nothing is written, and what is refused is refused all the same. `born` is
    that of the group that is meant; None: whichever has the name.

    Raises:
        UnknownGroupError: another group has the name by now; nothing is written.
        ConflictError: the group is that of a ConsumerGroup on Kubernetes; or the queue or the group
            was changed meanwhile, and a repeat does the rest.
        UnknownQueueError: nobody has created the queue.
        StoreUnavailableError: half of it may be done; a repeat does the rest.
    """
    known = await configs.read_queue()
    if known is None:
        raise UnknownQueueError(f"group {group}: its queue has no config in the store; create it")
    stored = await configs.read_group(group)
    check_born(group, stored, born)
    if stored is not None and stored.spec.get("uid") is not None:
        raise ConflictError(
            f"group {group}: it belongs to a ConsumerGroup on Kubernetes, and the operator would "
            "make it again; delete that one in the queue's namespace: "
            f"kubectl delete consumergroup {group}"
        )
    if is_dry_run:
        return
    await _erase_groups(configs, {group: stored}, known)
    others = [each for each in known.groups if each != group]
    # Of a group that is not named any more, too: at a new generation coordinators look again.
    await _write_queue(configs, known.spec, others, known)


def check_born(group: str, stored: ConfigRecord | None, born: int | None) -> None:
    """Refuse to remove another group than the one that is meant, by the `born` of its config.

    Raises:
        UnknownGroupError: another group has the name by now.
    """
    if stored is not None and born is not None and stored.born != born:
        raise UnknownGroupError(
            f"group {group}: got the removal of the group that was made at {born}, but the one of "
            f"this name was made at {stored.born}; nothing was removed: to remove it, ask again "
            "what would go"
        )


async def _register(lives: LifeRegistry, name: str, uid: str) -> None:
    """Make sure that the queue's name is that of this life.

    Raises:
        OtherLifeError: another life is the current one, or this one was given up.
    """
    life = await lives.register(uid)
    if life.current is None:
        raise OtherLifeError(
            f"queue {name}: the resource with the uid {uid} was deleted, and has given up the "
            "name; create another one"
        )
    if life.current != uid:
        raise OtherLifeError(
            f"queue {name}: got the uid {uid}, expected {life.current}, whose keys the store "
            "holds; use another Redis or key prefix, or, if no cluster has that queue any more, "
            f"free its name: redis-cli HDEL {shlex.quote(life.key)} current"
        )


async def _erase_replaced(
    configs: ConfigWriter,
    replaced: Collection[str],
    stored: dict[str, ConfigRecord | None],
    known: ConfigRecord | None,
) -> ConfigRecord | None:
    """Erase what `_find_replaced` has found, from `stored` too; return the queue's config then.

    Raises:
        ConflictError: somebody else has changed the queue or one of them meanwhile.
    """
    if replaced and known is not None:
        known = await _without(configs, known, replaced)
    for group in replaced:
        await configs.erase_group(group, born=_born(stored[group]))
        stored[group] = None
    return known


async def _with_spec(configs: ConfigWriter, groups: Sequence[str]) -> tuple[str, ...]:
    """Return the groups that have a spec: the removal of one without it was cut short."""
    specs = await _read_specs(configs, groups)
    return tuple(group for group, spec in specs.items() if spec is not None)


async def _read_specs(
    configs: ConfigWriter, groups: Iterable[str]
) -> dict[str, ConfigRecord | None]:
    """Return the stored spec of each group; None: it has none."""
    names = tuple(groups)
    specs = await asyncio.gather(*map(configs.read_group, names))
    return dict(zip(names, specs, strict=True))


def _find_replaced(
    groups: Mapping[str, EffectiveSpec],
    stored: Mapping[str, ConfigRecord | None],
    known: ConfigRecord | None,
) -> set[str]:
    """Return the groups whose name another group has in the store.

    That is one of a resource with another uid. One that the queue names, and that has no spec, is
    another group too: its removal was cut short, and its cursors may still be there.
    """
    named = groups.keys() & (known.groups if known is not None else ())
    return {
        group
        for group, spec in groups.items()
        if (stored[group] is None and group in named) or _is_another(stored[group], spec)
    }


async def _write_specs(
    configs: ConfigWriter,
    groups: Mapping[str, EffectiveSpec],
    stored: Mapping[str, ConfigRecord | None],
    known: ConfigRecord | None,
) -> None:
    """Write the specs that differ from those that are stored.

    Raises:
        ConflictError: somebody else has written or erased one meanwhile, or the queue's config is
            another one than is `known`.
    """
    births = {group: before.born for group, before in stored.items() if before is not None}
    begun = {group: await configs.begin_group(group) for group in groups.keys() - births.keys()}
    # From here on a removal takes its begin back, too; before, the queue's config tells.
    if begun and _generation(await configs.read_queue()) != _generation(known):
        raise _conflict(*begun)
    births |= begun
    for group, spec in groups.items():
        before = stored[group]
        if before is not None and before.spec == spec:
            continue
        number, born = _next_generation(before), births[group]
        if not await configs.write_group(group, spec, resource_generation=number, born=born):
            raise _conflict(group)


async def _erase_groups(
    configs: ConfigWriter,
    specs: Mapping[str, ConfigRecord | None],
    known: ConfigRecord | None,
) -> None:
    """Erase groups whose specs were read after the queue's config, which still names them.

    Or their cursors tell that they were there: after a crash the next process begins again.

    Raises:
        ConflictError: the config is another one than is `known`, or a group was created again.
    """
    # Removing a group and creating it again changes the queue's config: then the specs may be
    # those of the later group.
    if specs and _generation(await configs.read_queue()) != _generation(known):
        raise _conflict(*specs)
    for group, spec in specs.items():
        await configs.erase_group(group, born=_born(spec))


async def _add_groups(
    records: QueueRecords, starts: Mapping[str, Start], known: ConfigRecord | None
) -> None:
    """Give groups their cursors, unless the queue's config is another one than is `known`.

    A change of the partition count that is prepared meanwhile may not know of the groups: so its
    partitions get their cursors here, too. Those that have no record yet get them from the
    coordinator, as it finds the groups in the others.

    Raises:
        ConflictError: it is, or coordinators fence the partitions all the time; repeat.
    """
    partitions = records.partitions
    done: set[PartitionId] = set()
    for _ in range(MAX_ADD_TRIES):
        layout = (await records.layouts.read()).layout
        found = await partitions.read_many(sorted({*layout.all_partitions()} - done))
        if not found:
            return
        now = await records.configs.read_queue()
        if _generation(now) != _generation(known):
            break
        try:
            await in_chunks(
                partitions.add_group(each, group, start=start, fence=record.groups_fence)
                for group, start in starts.items()
                for each, record in found.items()
            )
        except ConflictError:
            continue  # a coordinator has looked after the groups meanwhile
        done.update(found)
    raise _conflict(*starts)


async def _write_queue(
    configs: ConfigWriter,
    spec: EffectiveSpec,
    groups: Sequence[str],
    known: ConfigRecord | None,
) -> None:
    """Write the queue's config, with these groups, over the one that is known.

    Raises:
        ConflictError: somebody else has done so meanwhile.
    """
    full = {**spec, "groups": list(groups)}
    if not await configs.write_queue(full, resource_generation=_next_generation(known)):
        raise _conflict(*groups)


def _conflict(*groups: str) -> ConflictError:
    names = ", ".join(groups) or "none"
    return ConflictError(
        f"groups {names}: not as wanted yet, as the queue or its groups were changed meanwhile; "
        "repeat it"
    )


def _born(stored: ConfigRecord | None) -> int:
    return 0 if stored is None else stored.born


def _generation(stored: ConfigRecord | None) -> int:
    return 0 if stored is None else stored.resource_generation


def _is_another(stored: ConfigRecord | None, spec: EffectiveSpec) -> bool:
    """Say whether a stored group belongs to another resource; one without a uid to any."""
    uids = (stored.spec.get("uid") if stored is not None else None), spec.get("uid")
    return None not in uids and uids[0] != uids[1]


async def _without(
    configs: ConfigWriter, known: ConfigRecord, groups: Collection[str]
) -> ConfigRecord:
    """Take groups out of the queue's config, and return it as it is then.

    Raises:
        ConflictError: somebody else has changed it meanwhile.
    """
    named = [group for group in known.groups if group not in groups]
    if len(named) < len(known.groups):
        await _write_queue(configs, known.spec, named, known)
        now = await configs.read_queue()
        if now is None or now.resource_generation != _next_generation(known):
            raise _conflict(*groups)
        return now
    return known


def _next_generation(stored: ConfigRecord | None) -> int:
    return _generation(stored) + 1
