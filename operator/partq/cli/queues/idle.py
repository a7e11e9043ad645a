"""When `partq consume --idle` may end: no message comes, and none is left that could still come."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from partq.client.consumer import Consumer
from partq.client.transport.session import Session
from partq.core.model import PartitionId
from partq.errors import UnavailableError

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

    def __str__(self) -> str:
        """Say where how many are, and who holds them."""
        names = ", ".join(self.partitions[:MAX_NAMED])
        more = len(self.partitions) - MAX_NAMED
        where = f"partition {names}" + (f" and {more} more" if more > 0 else "")
        held = ", ".join(self.holders[:MAX_NAMED]) or "no connected member"
        return f"{self.messages} messages are left in {where}, held by {held}"


def rest(
    answer: Mapping[str, Any], group: str, *, member: str, mine: frozenset[PartitionId]
) -> RemainingWork | None:
    """Return what is left for a member beyond what it holds; None: nothing.

    What another connected member holds is that one's, once this one holds something itself.

    Args:
        answer: of `GET .../status`.
        group: its group.
        member: its name; another process may hold partitions under it.
        mine: what it holds.
    """
    view = answer["groups"].get(group, {"members": (), "partitions": {}})
    states = {each["member"]: each["state"] for each in view["members"]}
    left: dict[str, int] = {}
    holders: list[str] = []
    held = {str(partition) for partition in mine}
    for name, record in answer["partitions"].items():
        if name in held:
            continue
        # A group that was made just now is not in the records of all partitions.
        row = view["partitions"].get(name) or {"lag": record["end"] - record["first"]}
        holder = row.get("member", "")
        is_held = row.get("state") == "Ready" and states.get(holder) == "Active"
        if row["lag"] > 0 and not (is_held and held and holder != member):
            left[name] = row["lag"]
            holders.append(holder if is_held else "")
    if not left:
        return None
    return RemainingWork(
        sum(left.values()), tuple(left), tuple(sorted(set(holders))) if all(holders) else ()
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
            answer = await self._session.ask("GET", "/status")
        except UnavailableError:
            if waited_s >= self._wait_s:
                raise
            return RemainingWork(0)  # nobody knows
        mine = consumer.partitions
        left = rest(answer, self._group, member=consumer.member, mine=mine)
        if left is None or self._since != since:  # it was assigned something meanwhile
            return left
        got = "nothing more" if mine else "no partition"
        if waited_s >= self._wait_s:
            raise UnavailableError(
                f"member {consumer.member} of group {self._group} got {got} within "
                f"{max(self._wait_s, self._idle_s):g} s; {left}; `partq status` shows the group"
            )
        self._looks += 1
        if self._looks == 2:  # at the first look the group may just be about to move
            click.echo(
                f"partq: {left}; waiting for at most {self._wait_s - waited_s:.0f} s", err=True
            )
        return left
