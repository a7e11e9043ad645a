"""How many partitions a queue should have, by what its groups did in the last minutes. Pure.

It knows members and lag, not keys: an archive says more (`pipeline/advise`). It never suggests
fewer partitions than there are.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from partq.excerpts import counted

WINDOW_COUNT = 20
"""How many samples of a queue in a row an advice takes."""
SKEWED_SHARE = 0.5
"""Share of a group's lag in one partition, above which more partitions hardly help."""


class AdviceReason(StrEnum):
    """Why a number of partitions is advised."""

    ENOUGH = "Enough"
    """Nothing asks for another number."""
    MEMBERS_STAND_BY = "MembersStandBy"
    """A group has more members than there are partitions: the others get no messages."""
    LAG_GROWS = "LagGrows"
    """A group falls behind, and each of its members has one partition at most."""
    FEW_MEMBERS = "FewMembers"
    """A group falls behind, and has fewer members than partitions: more members help."""
    SKEWED = "Skewed"
    """A group falls behind in one partition above all: its keys decide."""


class GroupLoad(NamedTuple):
    """A group at one time. Only groups of the type Partitioned are sampled."""

    members: int
    """Those that are connected and stay."""
    lag: int
    largest_lag: int
    """Of one partition."""


class PartitionAdvice(NamedTuple):
    """How many partitions are advised, and why."""

    partitions: int
    reason: AdviceReason
    text: str
    """The reason for people, with the figures of the time when it was found."""


Sample = Mapping[str, GroupLoad]


def advise(samples: Sequence[Sample], count: int, *, least: int, most: int) -> PartitionAdvice:
    """Return the advice for a queue of `count` partitions.

    Only what holds in all samples counts, so that the additional members of a rollout ask for
    nothing. More partitions are a multiple of `count`: each new one has one predecessor.

    Args:
        samples: the queue's groups by name, the oldest first; at least one.
        count: partitions that take messages; no change of their number is under way.
        least: the lowest number that the queue's policy takes.
        most: the highest.
    """
    names = set(samples[0]).intersection(*samples[1:])
    found = [_of_group(name, [each[name] for each in samples], count) for name in sorted(names)]
    ranked = sorted(found, key=lambda each: (-each.partitions, _RANKS.index(each.reason)))
    enough = PartitionAdvice(
        count, AdviceReason.ENOUGH, f"no group needs more than {counted(count, 'partition')}"
    )
    advice = next(iter(ranked), enough)
    within = min(max(advice.partitions, least), most)
    if within == advice.partitions:
        return advice
    bounded = f"{advice.text}; partitionsPolicy allows {least} to {most}"
    return advice._replace(partitions=within, text=bounded)


_RANKS = [
    AdviceReason.LAG_GROWS,
    AdviceReason.MEMBERS_STAND_BY,
    AdviceReason.SKEWED,
    AdviceReason.FEW_MEMBERS,
    AdviceReason.ENOUGH,
]


def _of_group(name: str, samples: Sequence[GroupLoad], count: int) -> PartitionAdvice:
    members = min(each.members for each in samples)
    partitions = counted(count, "partition")
    has = f"group {name} has {counted(members, 'member')} for {partitions}"
    if members > count:
        wanted = -(-members // count) * count
        text = f"{has}: {members - count} of them get no messages"
        return PartitionAdvice(wanted, AdviceReason.MEMBERS_STAND_BY, text)
    if not members or not _grows([each.lag for each in samples]):
        return PartitionAdvice(count, AdviceReason.ENOUGH, f"no group needs more than {partitions}")
    last = samples[-1]
    behind = f"{has} and falls behind, with a lag of {counted(last.lag, 'message', spec=',')}"
    if last.largest_lag > SKEWED_SHARE * last.lag and count > 1:
        text = (
            f"{behind}, {last.largest_lag / last.lag:.0%} of them in one partition: more "
            "partitions help only if several busy keys share it; `partq pipeline advise` tries "
            "numbers on the keys of an archive"
        )
        return PartitionAdvice(count, AdviceReason.SKEWED, text)
    if members < count:
        text = f"{behind}: add members first; up to {count} can work at a time"
        return PartitionAdvice(count, AdviceReason.FEW_MEMBERS, text)
    text = f"{behind}: it needs more members, and partitions for them"
    return PartitionAdvice(2 * count, AdviceReason.LAG_GROWS, text)


def _grows(lags: Sequence[int]) -> bool:
    """Whether a lag was larger all through the later half than ever in the earlier one."""
    half = len(lags) // 2
    return half > 0 and min(lags[half:]) > max(lags[:half])
