"""When `partq consume --idle` may end: no message comes, and none is left that could still come."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import click

from partq.cli.queues.problems import named, unread_partitions
from partq.client.consumer import Consumer
from partq.client.transport.session import Session
from partq.core.model import PartitionId
from partq.errors import UnavailableError
from partq.excerpts import counted
from partq.wire.calls.status import StatusAnswer

LOOK_EVERY_S = 1.0
"""How often a broker is asked at most while messages are left."""
MAX_NAMED = 3

T = TypeVar("T")


class IdleError(Exception):
    """No message came for as long as one is waited for, and nothing is left to come."""


@dataclass(frozen=True, slots=True)
class RemainingWork:
    """What a member may still get, although it does not hold it."""

    messages: int
    """How many are not acknowledged."""
    partitions: tuple[str, ...] = ()
    """Where they are."""
    holders: tuple[str, ...] = ()
    """The connected members that hold all of these partitions; empty: not all are held."""
    unread: tuple[str, ...] = ()
    """Partitions of which it is unknown whether something is left."""

    def __str__(self) -> str:
        """Say what is left, and where that is unknown."""
        return "; ".join([*self.known(), *self.unknown()])

    def known(self) -> list[str]:
        """Say how many are left, where, and which members hold them."""
        if not self.partitions:
            return []
        held = ", ".join(self.holders[:MAX_NAMED]) or "no connected member"
        what = counted(self.messages, "message is", "messages are")
        return [f"{what} left in {_named(self.partitions)}, held by {held}"]

    def unknown(self) -> list[str]:
        """Say which partitions cannot be read."""
        if not self.unread:
            return []
        return [f"{_named(self.unread)} cannot be read: Redis does not answer for it"]


def _named(partitions: Sequence[str]) -> str:
    return f"partition {named(partitions, MAX_NAMED)}"


def rest(
    answer: StatusAnswer, group: str, *, member: str, mine: frozenset[PartitionId]
) -> RemainingWork | None:
    """Return what is left for a member beyond what it holds; None: nothing.

    What another connected member holds is that one's, once this one holds something itself.
    What lies in a partition that cannot be read is unknown: not even its holder gets it now.

    Args:
        answer: of `GET .../status`.
        group: its group.
        member: its name; another process may hold partitions under it.
        mine: what it holds.
    """
    view = answer.groups.get(group)
    states = {each.member: each.state for each in view.members} if view is not None else {}
    rows = view.partitions if view is not None else {}
    left: dict[str, int] = {}
    holders: list[str] = []
    held = {str(partition) for partition in mine}
    for name, record in answer.partitions.items():
        # Of a held one everything comes, unless its broker has died.
        if name in held and name not in answer.unavailable:
            continue
        # A group that was made just now is not in the records of all partitions.
        row = rows.get(name)
        lag = record.end - record.first if row is None else row.lag
        holder = "" if row is None else row.member
        is_held = row is not None and row.state == "Ready" and states.get(holder) == "Active"
        if lag > 0 and not (is_held and held and holder != member):
            left[name] = lag
            holders.append(holder if is_held else "")
    unread = tuple(unread_partitions(answer))
    if not left and not unread:
        return None
    return RemainingWork(
        sum(left.values()),
        tuple(left),
        tuple(sorted(set(holders))) if all(holders) else (),
        unread,
    )


class Idleness:
    """The time for which a member gets nothing.

    It begins with the last message, and with each partition that the member is assigned. When it
    is over while messages are left that the member does not hold, they are waited for.

    Args:
        session: open, to ask for the group's state.
        group: the member's.
        idle_s: how long nothing has to come, in seconds, above 0.
        wait_s: how long it may wait for what is left, in seconds, from 0.
    """

    def __init__(self, session: Session, group: str, *, idle_s: float, wait_s: float) -> None:
        self._session = session
        self._group = group
        self._idle_s = idle_s
        self._wait_s = wait_s
        self._clock = asyncio.get_running_loop().time
        self._since = self._clock()
        self._looks = 0
        self._told: frozenset[str] = frozenset()
        """The partitions that could not be read at the last look."""

    def begin(self, _: object = None) -> None:
        """Begin again: something was assigned, or came."""
        self._since = self._clock()
        self._looks = 0

    async def bound(self, taken: AsyncIterator[T], consumer: Consumer) -> AsyncIterator[T]:
        """Yield what comes.

        Raises:
            IdleError: nothing comes any more.
            UnavailableError: nothing came, although something is left.
        """
        while True:
            coming = asyncio.ensure_future(anext(taken))
            try:
                await self._until(coming, consumer)
                each = await coming
            except StopAsyncIteration:
                return
            finally:
                if not coming.done():
                    coming.cancel()
                    await asyncio.wait([coming])
            yield each
            self.begin()

    async def _until(self, coming: "asyncio.Future[T]", consumer: Consumer) -> None:
        pause_s = 0.0
        while not coming.done():
            left_s = max(self._since + self._idle_s - self._clock(), pause_s)
            await asyncio.wait([coming], timeout=left_s)
            pause_s = 0.0
            if not coming.done() and self._is_over():
                left = await self._remaining(consumer)
                if left is None and not coming.done() and self._is_over():
                    raise IdleError
                pause_s = min(self._idle_s, LOOK_EVERY_S)

    def _is_over(self) -> bool:
        return self._clock() >= self._since + self._idle_s

    async def _remaining(self, consumer: Consumer) -> RemainingWork | None:
        """Return what is left; raises UnavailableError as `bound`."""
        since, waited_s = self._since, self._clock() - self._since
        try:
            answer = await self._session.ask("GET", "/status", StatusAnswer)
        except UnavailableError:
            if waited_s >= self._wait_s:
                raise
            return RemainingWork(0)  # how many is unknown
        mine = consumer.partitions
        left = rest(answer, self._group, member=consumer.member, mine=mine)
        unread = frozenset(left.unread if left is not None else ())
        is_news, self._told = bool(unread - self._told), unread
        if left is None or self._since != since:  # it was assigned something meanwhile
            return left
        got = "nothing more" if mine else "no partition"
        if waited_s >= self._wait_s:
            raise UnavailableError(
                f"member {consumer.member} of group {self._group} got {got} within "
                f"{max(self._wait_s, self._idle_s):g} s; {left}; `partq status` shows the group"
            )
        self._looks += 1
        # At the first look the group may just be about to move.
        news = left.known() if self._looks == 2 else []
        news += left.unknown() if is_news else []
        if news:
            told = "; ".join(news)
            click.echo(
                f"partq: {told}; waiting for at most {self._wait_s - waited_s:.0f} s", err=True
            )
        return left
