"""Removing a consumer group, as an administrator wants it: outside Kubernetes nobody else does.

The queue stops naming it, by the steps of the operator. Then its coordinator drops the cursors, and
each broker forgets it when it reads the queue's config.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

from partq.broker.broker import Broker
from partq.coordinator.provision import check_born, remove_group
from partq.core.cursor.lag import lag_of
from partq.core.model import PartitionId
from partq.errors import ConflictError, UnavailableError, UnknownGroupError
from partq.excerpts import excerpt, some_of
from partq.store.records.stored_partition import StoredPartition
from partq.wire.calls.answers import UNSET
from partq.wire.calls.group.removal import RemoveAnswer, RemoveBody
from partq.wire.calls.state import BrokerAnswer

MAX_NAMED = 3
"""How many members or brokers an error names."""

_log = logging.getLogger(__name__)


async def remove(
    broker: Broker, group: str, body: RemoveBody, states: Mapping[str, BrokerAnswer]
) -> RemoveAnswer:
    """Remove a group, or say what would go; a repeat does what an earlier call has left.

    Args:
        broker: that is asked.
        group: its name.
        body: what was asked for.
        states: what `group_snapshot.ask_all` has got from the brokers.

    Raises:
        UnknownGroupError: nothing is left of it, if it was ever there; or it is not the group
            that is meant, and nothing is changed.
        ConflictError: it is not removed: members are connected, it belongs to a resource on
            Kubernetes, or it was changed meanwhile.
        UnavailableError: brokers or nodes of the store do not say what they have of it.
        StoreUnavailableError: half of it may be done; a repeat does the rest.
    """
    partitions = broker.config.layout.partitions()
    born = None if body.born is UNSET else body.born
    stored = await broker.configs.read_group(group)
    check_born(group, stored, born)  # before anything is said of another group
    config = await broker.configs.read_queue()
    named = frozenset(config.groups if config is not None else ())
    records = await broker.partitions.read_many(partitions)
    _check_answers(broker, states, set(partitions) - records.keys())
    having = [partition for partition, record in records.items() if group in record.groups]
    known = {str(partition) for partition in having} | set(_known(group, states))
    others = sorted(named - {group})
    if group not in named and not known:
        raise UnknownGroupError(
            f"group {excerpt(group)}: queue {broker.settings.queue} has {some_of(others)}; "
            "nothing of this one is there to be removed"
        )
    if group in named:
        _check_members(group, states)
    lag, letters = await _unfinished(broker, group, {each: records[each] for each in having})
    await remove_group(broker.configs, group, is_dry_run=body.is_dry_run, born=born)
    if not body.is_dry_run:
        _log.info("group %s of %s removed", group, broker.settings.queue)
        await broker.refresh()
    return RemoveAnswer(
        is_removed=group not in named or not body.is_dry_run,
        partitions=len(known),
        lag=lag,
        dead_letters=letters,
        groups=others,
        born=UNSET if stored is None else stored.born,
    )


def _check_answers(
    broker: Broker, states: Mapping[str, BrokerAnswer], silent: Iterable[PartitionId]
) -> None:
    """Refuse to continue without having seen all of the queue."""
    errors = {name: each.error for name, each in states.items() if each.error is not UNSET}
    if errors:
        told = "; ".join(f"{name}: {errors[name]}" for name in sorted(errors)[:MAX_NAMED])
        raise UnavailableError(
            f"queue {broker.settings.queue}: {len(errors)} of {len(states)} brokers do not say "
            f"which members are connected ({told}); ask again",
            retry_after_s=1.0,
        )
    if missing := sorted(silent):
        raise UnavailableError(
            f"queue {broker.settings.queue}: Redis does not show the records of {len(missing)} "
            f"partitions, the first is {missing[0]}; ask again",
            retry_after_s=1.0,
        )


def _check_members(group: str, states: Mapping[str, BrokerAnswer]) -> None:
    members = sorted(
        {
            flow.member
            for answer in states.values()
            if answer.state is not UNSET
            for flow in answer.state.flows
            if flow.group == group
        }
    )
    if members:
        is_one = len(members) == 1
        raise ConflictError(
            f"group {group}: {'member' if is_one else 'members'} {some_of(members, MAX_NAMED)} "
            f"{'is' if is_one else 'are'} connected; stop {'it' if is_one else 'them'} first: "
            "nothing was removed"
        )


def _known(group: str, states: Mapping[str, BrokerAnswer]) -> Iterable[str]:
    """Return the partitions where a broker has the group in memory."""
    return (
        name
        for answer in states.values()
        if answer.state is not UNSET
        for name, partition in answer.state.partitions.items()
        if group in partition.groups
    )


async def _unfinished(
    broker: Broker, group: str, records: Mapping[PartitionId, StoredPartition]
) -> tuple[int, int]:
    """Return how many messages a group has not acknowledged, and how many dead letters wait."""
    lag = letters = 0
    reads = (broker.partitions.read_cursor(partition, group) for partition in records)
    found = await asyncio.gather(*reads, return_exceptions=True)
    for record, cursor in zip(records.values(), found, strict=True):
        if isinstance(cursor, UnknownGroupError):
            continue  # it was dropped meanwhile
        if isinstance(cursor, BaseException):
            raise cursor
        lag += lag_of(record.next, cursor.cursor, cursor.acked)
        letters += len(cursor.outbox)
    return lag, letters
