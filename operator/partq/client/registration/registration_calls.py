"""Calls of a member that chooses its partitions, repeated until judged, and what they tell."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from partq.client.partition_key import PartitionKey
from partq.client.transport.retries import retry_backoff
from partq.client.transport.session import NOT_REACHED, Session, why
from partq.core.model import PartitionId
from partq.errors import (
    AttemptRefusedError,
    ConflictError,
    MemberInUseError,
    MemberRefusedError,
    PartqError,
    UnavailableError,
)
from partq.path_names import quoted
from partq.wire.calls.answers import UNSET
from partq.wire.calls.registration import (
    MAX_UNREGISTER_WAIT_MS,
    ConfiguredPartition,
    ConfiguredPartitions,
    Node,
    NodeBody,
    NodeCleared,
    RegisterBody,
    Registered,
    Unregistered,
)

log = logging.getLogger("partq.client")

T = TypeVar("T")


def _is_unjudged(error: PartqError) -> bool:
    """Return whether a repeat may succeed although nobody changes anything meanwhile."""
    return error.is_retryable and not isinstance(error, ConflictError | MemberRefusedError)


def _may_end_soon(error: PartqError) -> bool:
    """Return the same; True also for an earlier process of the member, which may have ended."""
    return isinstance(error, MemberInUseError) or _is_unjudged(error)


def _ends_by_itself(error: PartqError) -> bool:
    """Return the same; True also if a bind or a handoff was under way, which ends by itself."""
    was_busy = isinstance(error, AttemptRefusedError) or error.retry_after_s is not None
    return was_busy or _is_unjudged(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredPartitionInfo:
    """A partition of the queue, whether or not anybody serves or holds it now."""

    is_subscribable: bool
    """Whether it can be registered now, if nobody holds it."""
    reason: str
    """Why not; empty: it can."""
    broker: str
    """Its owner, or its last one; empty: it never had one."""
    member: str
    """The member that holds it; empty: none, or its record cannot be read."""
    node_id: int | None
    """Of that member; None: it has said none."""
    state: str
    """`Unassigned`, `Ready`, `Paused` or `Unbound`; empty: its record cannot be read."""
    epoch: int
    """Of the partition in the group: it grows with every member and every bind."""
    cursor: int
    """Below this offset the group has acknowledged everything."""
    end: int
    """The offset of the next message to be published."""
    lag: int
    """Messages that the group has not acknowledged."""
    lag_ms: int
    """How long the oldest of them has been stored, in milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A partition that the consumer has registered."""

    key: PartitionKey
    """The partition."""
    offset: int
    """Where the group begins."""
    is_clamped: bool
    """The log does not hold the offset that was asked for: the nearest that it holds is taken."""
    is_new: bool
    """False: the member had it before, and nothing was changed."""


def registration_of(key: PartitionKey, answer: Registered) -> Registration:
    """Return what the brokers have answered of a partition, as the application sees it."""
    return Registration(
        key=key, offset=answer.cursor, is_clamped=answer.is_clamped, is_new=answer.is_new
    )


def configured_partition_info(row: ConfiguredPartition) -> ConfiguredPartitionInfo:
    """Return a partition as the application sees it."""
    return ConfiguredPartitionInfo(
        is_subscribable=row.is_subscribable,
        reason=row.reason,
        broker=row.broker,
        member=row.member,
        node_id=None if row.node_id is UNSET else row.node_id,
        state=row.state,
        epoch=row.epoch,
        cursor=row.cursor,
        end=row.end,
        lag=row.lag,
        lag_ms=row.lag_ms,
    )


class RegistrationCalls:
    """Calls of one process of a member; any broker takes them. Every call may be repeated.

    Each raises what a broker refuses it with, at once unless that passes by itself, and
    UnavailableError when none has judged it within `timeout_s`: then it may have had its effect.

    Args:
        session: open, with a token that may consume.
        urls: returns the brokers that are known now.
        group: of the member.
        member: its name.
        incarnation: of its process.
    """

    def __init__(
        self,
        session: Session,
        urls: Callable[[], Sequence[str]],
        *,
        group: str,
        member: str,
        incarnation: str,
    ) -> None:
        self._session = session
        self._urls = urls
        self._incarnation = incarnation
        self._group_path = f"/groups/{quoted(group, 'group')}"
        self._path = f"{self._group_path}/members/{quoted(member, 'member')}"

    async def query(self, timeout_s: float) -> ConfiguredPartitions:
        """Return every configured partition of the queue."""
        path = f"{self._group_path}/partitions"
        return await self._call("GET", path, ConfiguredPartitions, timeout_s)

    async def register(
        self, partition: PartitionId, *, epoch: int, offset: int, timeout_s: float
    ) -> Registered:
        """Register a partition that was seen under an epoch."""
        body = RegisterBody(self._incarnation, epoch, offset)
        path = f"{self._path}/partitions/{partition}"
        return await self._call("PUT", path, Registered, timeout_s, body)

    async def unregister(
        self,
        partition: PartitionId,
        *,
        epoch: int,
        wait_s: float,
        is_forced: bool,
        timeout_s: float,
    ) -> Unregistered:
        """Give a partition back, or begin to."""
        wait_ms = max(0, min(MAX_UNREGISTER_WAIT_MS, round(wait_s * 1000)))
        incarnation = quoted(self._incarnation, "incarnation")
        path = (
            f"{self._path}/partitions/{partition}?incarnation={incarnation}&epoch={epoch}"
            f"&wait_ms={wait_ms}&is_forced={str(is_forced).lower()}"
        )
        return await self._call("DELETE", path, Unregistered, timeout_s, may_pass=_ends_by_itself)

    async def set_node(self, source_count: int, node_id: int, timeout_s: float) -> Node:
        """Say which node of how many the member is."""
        body = NodeBody(self._incarnation, source_count, node_id)
        path = f"{self._path}/node"
        return await self._call("PUT", path, Node, timeout_s, body, may_pass=_may_end_soon)

    async def clear_node(self, timeout_s: float) -> None:
        """Free the member's number."""
        incarnation = quoted(self._incarnation, "incarnation")
        path = f"{self._path}/node?incarnation={incarnation}"
        await self._call("DELETE", path, NodeCleared, timeout_s)

    async def _call(
        self,
        method: str,
        path: str,
        kind: type[T],
        timeout_s: float,
        body: object = None,
        *,
        may_pass: Callable[[PartqError], bool] = _is_unjudged,
    ) -> T:
        clock = asyncio.get_running_loop().time
        until = clock() + timeout_s
        backoff = retry_backoff(most_s=1.0)
        while True:
            reasons = []
            refusal: PartqError | None = None
            for url in self._urls():
                try:
                    return await self._session.call(method, url, path, kind, body)
                except NOT_REACHED as error:
                    reasons.append(f"{url}: {why(url, error)}")
                except PartqError as error:
                    if not may_pass(error):
                        raise
                    refusal = None if _is_unjudged(error) else error
                    reasons.append(f"{url}: {error.message}")
                    break  # the brokers pass a call on: another one would say the same
            if clock() >= until:
                if refusal is not None:
                    raise refusal
                raise UnavailableError(
                    f"no broker has judged the call within {timeout_s:g} s ({'; '.join(reasons)}); "
                    "it may have had its effect: repeat it"
                )
            advice_s = None if refusal is None else refusal.retry_after_s
            wait_s = min(backoff.next_s(advice_s), max(0.0, until - clock()))
            log.debug("%s %s failed, it is repeated in %.2f s: %s", method, path, wait_s, reasons)
            await asyncio.sleep(wait_s)
