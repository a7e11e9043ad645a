"""Whether members of this pod still hold something, and making them give it away."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from partq.client.transport.session import NOT_REACHED, Session, is_final, why
from partq.errors import PartqError, UnknownGroupError
from partq.excerpts import excerpt, some_of
from partq.path_names import quoted
from partq.wire.calls.answers import MemberAnswer

POLL_S = 0.25
"""How long after an answer the brokers are asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPartitions:
    """What a member holds."""

    partitions: Mapping[str, int]
    """Partition → messages that were delivered to it and not acknowledged."""
    is_bound: bool
    """It is connected to a broker."""
    is_known: bool = True
    """It is connected, holds something, or the group lists it, until some time after it left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainStatus:
    """What the brokers say of some members at one time."""

    members: Mapping[str, HeldPartitions]
    unknown: Sequence[str]
    """Partitions without an answering owner, whose member is unknown."""
    troubles: Sequence[str] = ()
    """Why brokers have not answered."""

    @property
    def is_drained(self) -> bool:
        """Whether no member holds any partition, and every partition was seen."""
        return not self.unknown and not any(each.partitions for each in self.members.values())

    @property
    def strangers(self) -> list[str]:
        """The members that every broker was asked for, and none knows."""
        if self.unknown or self.troubles:
            return []
        return [name for name, each in self.members.items() if not each.is_known]


@dataclass(frozen=True, slots=True)
class _DrainAnswer:
    owned: frozenset[str]
    held: Mapping[str, int]
    is_bound: bool
    is_known: bool

    @classmethod
    def of(cls, answer: MemberAnswer) -> "_DrainAnswer":
        return cls(
            owned=frozenset(answer.owned),
            held={partition: each.in_flight for partition, each in answer.held.items()},
            is_bound=answer.is_bound,
            is_known=answer.is_known,
        )


async def read_status(
    session: Session, group: str, members: Collection[str], *, leaves: bool
) -> DrainStatus:
    """Ask every broker of the queue once.

    Args:
        session: open, with a token that may consume.
        group: the consumer group of the members.
        members: their ids.
        leaves: also tell the brokers that the members leave, so that others take over.

    Raises:
        UnavailableError: no broker answers.
        UnknownGroupError: the queue does not have the group.
        PartqError: a broker refuses the call for good, such as `unauthorized`.
    """
    queue_layout = await session.layout(session.seeds)
    if group not in queue_layout.groups:
        raise UnknownGroupError(
            f"consumer group {excerpt(group)!r}: not found, expected one of the queue's: "
            f"{some_of(queue_layout.groups)}"
        )
    urls = sorted(set(queue_layout.urls.values()))
    calls = [(url, member) for url in urls for member in members]
    answers = await asyncio.gather(
        *(_ask(session, url, group, member, leaves=leaves) for url, member in calls)
    )
    owned: set[str] = set()
    troubles = []
    by_member: dict[str, list[_DrainAnswer]] = {member: [] for member in members}
    for (_, member), answer in zip(calls, answers, strict=True):
        if isinstance(answer, str):
            troubles.append(answer)
        else:
            owned |= answer.owned
            by_member[member].append(answer)
    return DrainStatus(
        members={member: _joined(some) for member, some in by_member.items()},
        unknown=[str(p) for p in queue_layout.layout.partitions() if str(p) not in owned],
        troubles=sorted(set(troubles)),
    )


async def _ask(
    session: Session, url: str, group: str, member: str, *, leaves: bool
) -> _DrainAnswer | str:
    """Return a broker's answer, or why it has no answer."""
    path = f"/groups/{quoted(group, 'group')}/members/{quoted(member, 'member')}"
    try:
        answer = await (
            session.post(url, f"{path}/leave", MemberAnswer)
            if leaves
            else session.get(url, path, MemberAnswer)
        )
    except NOT_REACHED as error:
        return f"{url}: {why(url, error)}"
    except PartqError as error:
        if is_final(error):
            raise
        return f"{url}: {error.message}"
    return _DrainAnswer.of(answer)


def _joined(answers: Collection[_DrainAnswer]) -> HeldPartitions:
    held: dict[str, int] = {}
    for answer in answers:
        held |= answer.held
    return HeldPartitions(
        partitions=held,
        is_bound=any(answer.is_bound for answer in answers),
        is_known=not answers or any(answer.is_known for answer in answers),
    )
