"""A partition with the name of its queue: what tells partitions of several queues apart."""

from typing import NamedTuple, Self

from partq.client.arguments import check_names
from partq.core.model import PartitionId
from partq.errors import SettingsError
from partq.excerpts import excerpt


class PartitionKey(NamedTuple):
    """A partition of one queue, written `orders:1.3`: unique among the queues of a namespace.

    Keys sort by queue, generation and index. No broker is part of one: partitions move between
    brokers, and keep their keys.
    """

    queue: str
    """Name of the queue."""
    partition: PartitionId
    """Generation and number in the queue."""

    def __str__(self) -> str:
        return f"{self.queue}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `orders:1.3`, as `str` writes it: a partition has only one key.

        Raises:
            ValueError: it is not the name of a queue, a colon and a partition.
        """
        try:
            queue, _, partition = text.partition(":")
            check_names({"queue": queue}, needed=("queue",))
            return cls(queue, PartitionId.parse(partition))
        except (SettingsError, ValueError, AttributeError, TypeError):  # no text, too
            raise ValueError(
                f"partition key: got {excerpt(text)!r}, expected QUEUE:GENERATION.INDEX, such as "
                "orders:1.3"
            ) from None
