"""Interfaces of flows and shares, for the partition that they consume."""

from typing import Protocol, TypeVar

from partq.broker.partition.consumer_ref import ConsumerRef
from partq.core.cursor.windows import TakenBack
from partq.core.model import Cause, Epoch, PartitionId
from partq.core.ranges import Ranges

_Taken = TypeVar("_Taken", contravariant=True)
"""A consumed partition, as an argument."""
_Given = TypeVar("_Given")
"""The same, as an answer."""


class FlowOf(ConsumerRef, Protocol[_Taken]):
    """Interface of a bound flow, for a consumed partition and the code that changes one."""

    takes_turns: bool
    """Whether its client knows the type Shared."""

    @property
    def group(self) -> str:
        """The group that the flow consumes for."""

    @property
    def priority(self) -> int:
        """Of its member, 0 (the highest) to 9."""

    @property
    def is_leaving(self) -> bool:
        """Whether its member has said that it leaves."""

    def ask_all_back(self, consumed: _Taken) -> None:
        """Ask the client for all that has not begun."""

    @property
    def is_able(self) -> bool:
        """Whether it could be sent something now: it has room, and sends nothing else."""

    def notice(self, consumed: _Taken) -> None:
        """Look at a partition again: it may have something to send."""

    def end_in_flight(self, messages: int) -> None:
        """Count messages that the client has acknowledged, given back or lost."""

    def send_paused(self, consumed: _Taken) -> None:
        """Tell the client that nothing new comes."""

    def send_resumed(self, consumed: _Taken) -> None:
        """Tell the client that a pause is over without a handoff."""

    def ask_back(self, consumed: _Taken, taken: TakenBack) -> None:
        """Ask the client for what has not begun of the lanes of messages that were taken back."""

    def send_rewound(self, consumed: _Taken, start: int, cause: Cause) -> None:
        """Tell the client that all from `start` on is redelivered."""

    def watch(self, consumed: _Taken) -> None:
        """Look at a partition again: now, and when what waits in its book has waited enough."""

    def ask_lanes_back(self, consumed: _Taken, lanes: frozenset[int], notice: int) -> None:
        """Ask the client for what has not begun of lanes."""

    def send_lanes(self, consumed: _Taken) -> None:
        """Tell the client which slots of a partition it has now."""

    def attach(self, consumed: _Taken) -> None:
        """Begin to deliver a partition; its epoch is the new one already."""

    def unsent(self, partition: PartitionId) -> Ranges:
        """Return the offsets of deliveries that wait for their audit record: no client has them."""

    def detach(self, consumed: _Taken, cause: Cause) -> None:
        """Stop delivering a partition; the client is told why."""


class SharesOf(Protocol[_Given]):
    """Interface of the shares of a partition, which flows of several members have."""

    def holders(self) -> list[_Given]:
        """Return the shares that are bound."""

    def of_flow(self, flow: object, epoch: Epoch | None = None) -> _Given | None:
        """Return the share that a flow has; of several the one under an epoch."""

    def wants(self, flow: FlowOf[_Given]) -> bool:
        """Whether a flow is to get a share."""

    def bind(self, flow: FlowOf[_Given]) -> None:
        """Give a flow the share of its member, under a new epoch."""

    def wake(self) -> None:
        """Have flows look at the partition again: they may have something to send."""

    @property
    def is_full(self) -> bool:
        """Whether no further flow gets a share."""

    def force_due(self, now: float) -> bool:
        """Take by force what has drained for too long; return whether counts have changed."""
