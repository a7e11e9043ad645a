"""How a group of a partition, and the flow that consumes it, are named in audit records."""

from typing import Protocol

from partq.core.model import Epoch, MemberId


class ConsumerRef(Protocol):
    """Names one flow: the member, its incarnation and the number of the flow."""

    @property
    def member(self) -> MemberId: ...  # noqa: D102  as in frames
    @property
    def incarnation(self) -> str: ...  # noqa: D102
    @property
    def number(self) -> int: ...  # noqa: D102


class GroupRef(Protocol):
    """Names one group of a partition, with the member that holds the partition now."""

    @property
    def group(self) -> str: ...  # noqa: D102  as in frames
    @property
    def member(self) -> MemberId | None: ...  # noqa: D102
    @property
    def epoch(self) -> Epoch: ...  # noqa: D102
