"""How long a flow may be silent before it is lost, and when one counts as stuck."""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from partq.broker.delivery.flow import Flow
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.core.cursor.horizon import MAX_PIECES
from partq.core.model import MemberId

PING_LOST_S = 3.0
"""A flow without a frame for this long is lost."""
PING_MISSED_S = 1.5
"""A flow without a frame for this long has missed a ping: another incarnation may take over."""
LOOK_GAP_S = 0.25
"""How often silent and stuck flows are looked for."""
PULL_LEASE_S = 30.0
"""A pulling member is bound for this long after its last call."""
STUCK_S = 10.0
"""A flow at the limit of unacknowledged messages is reported after this long without an ack."""

RETURN_S = 60.0
"""How long a client may take to answer `AskBack`, which asks for messages that it has not begun.
Then all that it has of the partition is taken back."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LostFlow:
    """A flow that ended, as the coordinator wants to know of it."""

    group: str
    member: MemberId
    incarnation: str
    lost_at: float
    is_leaving: bool
    """The member had said that it leaves: it does not come back."""
    priority: int
    ranges: tuple[tuple[int, int], ...]


class FlowLiveness:
    """Judges flows by when they were heard last, and by their acknowledgements."""

    def __init__(self) -> None:
        self._looked_at = inf
        """When flows were looked at last, by the event loop's clock."""

    def find_silent(self, flows: Iterable[Flow], now: float) -> list[Flow]:
        """Return the flows that have been silent for too long; report those that are stuck.

        While this broker's event loop stood still, flows could not be heard: that is no silence.
        """
        looked_at = asyncio.get_running_loop().time()
        still_s = max(0.0, looked_at - self._looked_at - LOOK_GAP_S)
        self._looked_at = looked_at
        silent = []
        for flow in flows:
            flow.last_seen = min(now, flow.last_seen + still_s)
            limit = PULL_LEASE_S if flow.kind == "pull" else PING_LOST_S
            if now - flow.last_seen > limit:
                silent.append(flow)
            elif not flow.is_known_stuck and now - flow.acked_at > STUCK_S:
                _report_stuck(flow)
        return silent


def find_unreturned(flows: Iterable[Flow], now: float) -> list[tuple[Flow, ConsumedPartition]]:
    """Return the partitions of flows that were asked for messages, and have not answered in time.

    A handoff that is under way has its separate time.
    """
    found = []
    for flow in flows:
        for consumed, asked in flow.asked_back.items():
            for notice, asked_at in asked.items():
                if asked_at is None:
                    asked[notice] = now
            is_late = any(now - (at or now) > RETURN_S for at in asked.values())
            if is_late and consumed.root.pause is None and not consumed.root.lock.locked():
                found.append((flow, consumed))
                _log.warning(
                    "flow of %s in %s: it was asked for messages of partition %s that it has not "
                    "begun, and has not answered for %g s: all that it has of it is redelivered",
                    *(flow.member, flow.group, consumed.partition, RETURN_S),
                )
    return found


def _report_stuck(flow: Flow) -> None:
    """Write once to the log why a flow gets nothing more, if it does."""
    if (partition := flow.scattered) is not None:
        flow.is_known_stuck = True
        _log.warning(
            "flow of %s in %s: what is acknowledged of partition %s lies in more than %d "
            "pieces: nothing new of it is sent until what lies between them is done",
            *(flow.member, flow.group, partition, MAX_PIECES),
        )
    elif (still := flow.standing_still) is not None:
        flow.is_known_stuck = True
        _log.warning(
            "flow of %s in %s: nothing new of partition %s is sent: %s",
            *(flow.member, flow.group, *still),
        )
    elif flow.credit.is_at_limit:
        flow.is_known_stuck = True
        _log.warning(
            "flow of %s in %s: %d messages are not acknowledged, which is the limit "
            "(limits.maxUnackedPerFlow): nothing more is sent until some are; "
            "acknowledge earlier, or raise it",
            *(flow.member, flow.group, flow.credit.unacked),
        )
