"""What members may register: marks of administrators on partitions and brokers."""

from partq.broker.broker import Broker
from partq.broker.delivery.flow_registry import MAX_NAME_CHARS
from partq.core.model import BrokerId, PartitionId
from partq.errors import BadRequestError, NotFoundError, NotSubscribableError
from partq.excerpts import excerpt, some_of
from partq.path_names import check_path_name
from partq.store.records.layout.marks import Marks, name_of
from partq.wire.calls.registration import Subscribable, SubscribableBody

_UNSAID = "an administrator has marked it, and gave no reason"


async def refusal_of_mark(broker: Broker, partition: PartitionId) -> NotSubscribableError | None:
    """Return why nobody may register a partition that is owned here; None: one may."""
    marks = Marks(broker.store, broker.keys)
    reason = await marks.find(name_of(partition), name_of(broker.id))
    if reason is None:
        return None
    return NotSubscribableError(
        f"partition {partition} at {broker.id}: not subscribable: {reason}; wait until the mark is "
        "taken back",
        retry_after_s=60.0,
    )


def _check_known(broker: Broker, name: BrokerId, outcome: str) -> None:
    claims = broker.claims
    known = {broker.id, *claims.observer.leases, *claims.owners.values()}
    if name not in known:
        raise NotFoundError(
            f"broker {excerpt(name)}: queue {broker.settings.queue} has {some_of(sorted(known))}; "
            f"{outcome}: name one of these"
        )


async def mark(
    broker: Broker, marked: PartitionId | BrokerId, body: SubscribableBody
) -> Subscribable:
    """Mark a partition or a broker, or take the mark back. A repeat changes nothing.

    A member that holds a partition keeps it.

    Raises:
        BadRequestError: the reason, or the name of the broker, is not printable, or the name has
            more than 253 characters.
        NotFoundError: no broker of this name has a lease or owns a partition, alive or not. If it
            is marked, the mark can be taken back.
        StoreUnavailableError: no answer; a repeat is harmless.
    """
    if not isinstance(marked, PartitionId):
        check_path_name(marked, "broker")
        if len(marked) > MAX_NAME_CHARS:
            raise BadRequestError(
                f"broker {excerpt(marked)!r}: got {len(marked)} characters, expected at most "
                f"{MAX_NAME_CHARS}: the name of a broker, as `partq status` shows it"
            )
    marks = Marks(broker.store, broker.keys)
    if body.is_subscribable:
        if not isinstance(marked, PartitionId) and await marks.find(name_of(marked)) is None:
            _check_known(broker, marked, "it has no mark that could be taken back")
        await marks.clear(name_of(marked))
        return Subscribable(is_subscribable=True, reason="")
    if not body.reason.isprintable():
        raise BadRequestError("reason: got control characters, expected printable text")
    if not isinstance(marked, PartitionId):
        _check_known(broker, marked, "nothing was marked")
    reason = body.reason or _UNSAID
    await marks.set(name_of(marked), reason)
    return Subscribable(is_subscribable=False, reason=reason)
