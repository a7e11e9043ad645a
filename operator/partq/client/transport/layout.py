"""What a client knows of a queue: partitions, brokers, owners and limits."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from partq.client.transport.answers import unusable
from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.errors import InternalError, PartqError
from partq.wire.calls.answers import UNSET, LayoutAnswer
from partq.wire.layout_record import layout_of

KEYLESS_POLICIES = frozenset({"Random", "RoundRobin"})


@dataclass(frozen=True, slots=True)
class QueueLayout:
    """The answer of `GET /v1/queues/{queue}/layout`, checked."""

    namespace: str
    queue: str
    uid: str
    """Tells this queue from earlier ones of the same name."""
    layout: Layout
    urls: Mapping[str, str]
    """Broker → its URL."""
    owners: Mapping[PartitionId, str]
    """Partition → URL of its broker. A partition that no living broker owns is left out."""
    max_message_bytes: int
    max_unacked_per_flow: int
    keyless_policy: str
    groups: frozenset[str]
    client_assigned: frozenset[str] = frozenset()
    """Those of them whose members choose their partitions."""
    knows_ids: bool = False
    """Whether brokers drop messages whose id is known: one without a key goes where its id does."""

    @classmethod
    def of(cls, answer: LayoutAnswer) -> Self:
        """Read the answer of a broker.

        Raises:
            InternalError: it is not what the protocol promises.
        """
        try:
            urls = {each.broker: each.url for each in answer.brokers}
            owners = {
                PartitionId.parse(partition): urls[broker]
                for partition, broker in answer.owners.items()
                if broker in urls
            }
            queue_layout = cls(
                namespace=answer.namespace,
                queue=answer.queue,
                uid=answer.uid,
                layout=_layout(answer),
                urls=urls,
                owners=owners,
                max_message_bytes=answer.limits.max_message_bytes,
                max_unacked_per_flow=answer.limits.max_unacked_per_flow,
                keyless_policy=answer.keyless_policy,
                groups=frozenset(answer.groups),
                client_assigned=frozenset(
                    () if answer.client_assigned is UNSET else answer.client_assigned
                ),
                knows_ids=answer.knows_ids is True,
            )
        except (ValueError, PartqError) as error:
            raise unusable("layout", error) from error
        if queue_layout.keyless_policy not in KEYLESS_POLICIES:
            expected = " or ".join(sorted(KEYLESS_POLICIES))
            raise InternalError(
                f"layout: keyless policy {queue_layout.keyless_policy!r}; expected {expected}; "
                "use a client of the broker's version"
            )
        return queue_layout


def _layout(answer: LayoutAnswer) -> Layout:
    """Return the partitions of an answer.

    Raises:
        SettingsError, ValueError: it is not what the protocol promises.
    """
    if answer.table is not UNSET:
        return layout_of(
            1 if answer.generation is UNSET else answer.generation,
            answer.table,
            {} if answer.lineage is UNSET else answer.lineage,
            {} if answer.retired is UNSET else answer.retired,
            {} if answer.counts is UNSET else answer.counts,
        )
    if [each.generation for each in answer.generations] != [1]:
        numbers = [each.generation for each in answer.generations]
        raise ValueError(f"got generations {numbers} without a table, expected generation 1 alone")
    return Layout.first(answer.generations[0].partitions)
