"""Says which groups keep the logs of this broker from being freed, for refusals without room."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from partq.core.model import PartitionId
from partq.excerpts import counted

MAX_TOLD = 3
"""Groups that a refusal names."""
KEPT_S = 1.0
"""How long a text is given out before it is rendered again, however many batches are refused."""


class Unacknowledged(NamedTuple):
    """What a group still needs of a partition's log: from `mark` to `end`."""

    group: str
    partition: PartitionId
    mark: int
    end: int
    dead_letters: int = 0
    """How many wait to be stored, where the first of them is at `mark`; 0: acks are missing."""


class Holders:
    """The groups that hold the oldest messages, in words; looked at only when it is asked for."""

    def __init__(
        self,
        look: Callable[[], Iterable[Unacknowledged]],
        clock: Callable[[], float],
        scheduled_bytes: Callable[[], int],
    ) -> None:
        self._look = look
        self._scheduled_bytes = scheduled_bytes
        self._clock = clock
        self._text = ""
        self._until = float("-inf")

    def describe(self) -> str:
        """Return one sentence that names them, and says what to do; at most a second old."""
        now = self._clock()
        if now >= self._until:
            self._text = describe_holders(self._look(), self._scheduled_bytes())
            self._until = now + KEPT_S
        return self._text


def describe_holders(found: Iterable[Unacknowledged], scheduled_bytes: int = 0) -> str:
    """Say what keeps this broker's room from being freed, and what to do.

    Args:
        found: what each group still needs of each log.
        scheduled_bytes: of what waits beside the logs until it is due.
    """
    told = _describe_groups(found)
    if not scheduled_bytes:
        return told or (
            "the groups have acknowledged all that this broker stores: it is freed within a second "
            "unless a pin holds it; `partq groups` and `partq scheduled list` show what waits at "
            "other brokers"
        )
    scheduled = (
        f"scheduled messages hold {scheduled_bytes:,} bytes of this broker until they are due: "
        "`partq scheduled list` shows them, `partq scheduled cancel` and `drop` free them"
    )
    return f"{told}; {scheduled}" if told else scheduled


def _describe_groups(found: Iterable[Unacknowledged]) -> str:
    """Say which groups hold the oldest messages of their partitions; empty: none does.

    A log is freed from its beginning on, so of each partition those groups count that are behind
    all others. The group with the most such messages is named first.
    """
    by_partition: dict[PartitionId, list[Unacknowledged]] = {}
    for each in found:
        by_partition.setdefault(each.partition, []).append(each)
    if not by_partition:
        return (
            "no consumer group acknowledges what this broker stores, so only the time to live "
            "(messageTTLSeconds) frees it: add a group, set one, or drop what is there"
        )
    counts: dict[str, int] = {}
    letters: dict[str, int] = {}
    oldest: dict[str, Unacknowledged] = {}
    is_unacknowledged = False
    for those in by_partition.values():
        mark = min(each.mark for each in those)
        for each in those:
            if each.mark == mark < each.end:
                counts[each.group] = counts.get(each.group, 0) + each.end - mark
                letters[each.group] = letters.get(each.group, 0) + each.dead_letters
                is_unacknowledged = is_unacknowledged or not each.dead_letters
                most = oldest.get(each.group, each)
                oldest[each.group] = max(most, each, key=lambda one: one.end - one.mark)
    if not counts:
        return ""
    groups = sorted(counts, key=lambda group: (-counts[group], group))
    named = ", ".join(
        f"group {group} ({counted(counts[group], 'message')}"
        + (f", {letters[group]} of them dead letters" if letters[group] else "")
        + f"; in partition {oldest[group].partition} from {oldest[group].mark} on)"
        for group in groups[:MAX_TOLD]
    )
    more = f" and {len(groups) - MAX_TOLD} more" if len(groups) > MAX_TOLD else ""
    held = f"the oldest messages of this broker are held by {named}{more}, until "
    if not is_unacknowledged:
        return (
            f"{held}the dead-letter queue takes them: create it or give it room (`partq reset` "
            "leaves them, `partq status` says why they wait), or remove a group that nobody needs, "
            "with its dead letters: on Kubernetes its ConsumerGroup, else by `partq groups remove`"
        )
    told = (
        f"{held}they are acknowledged: have them consumed, move the group over them with `partq "
        "reset`, or remove a group that nobody needs: on Kubernetes its ConsumerGroup, else by "
        "`partq groups remove`"
    )
    if any(letters.values()):
        told += (
            "; dead letters wait until their queue takes them, `partq reset` leaves them: create "
            "it or give it room; `partq status` says why they wait"
        )
    return told
