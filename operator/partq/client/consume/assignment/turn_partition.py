"""A partition of which every member of the group gets some messages, in turns."""

import asyncio
from collections.abc import Collection

from partq.client.consume.assignment.delivered_window import DeliveredWindow
from partq.client.consume.assignment.keyed_partition import KeyedPartition
from partq.errors import BadRequestError


class TurnPartition(KeyedPartition):
    """Messages of it come in any order, and one that is given back holds no other one up."""

    follows_rounds = True

    def hold_up(self, slots: Collection[int]) -> None:
        """Hold nothing up: the broker asks for nothing back."""

    def let_go(self, slots: Collection[int]) -> list[DeliveredWindow]:
        """Let nothing go on: nothing was held up."""
        return []

    def add_cumulative_ack(self, delivery: int, upto: int) -> asyncio.Future[None]:
        """Refuse an ack of all below an offset: other members have some of it.

        Raises:
            BadRequestError: always.
        """
        raise BadRequestError(
            f"ack_cumulative: {self}: the group has the type Shared, where other members have "
            f"messages below offset {upto}; expected `ack` of each message or batch; nothing was "
            "acknowledged"
        )
