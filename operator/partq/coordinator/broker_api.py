"""The brokers' admin API over HTTP."""

import asyncio
import ssl
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import aiohttp

from partq.coordinator.ports import (
    Answer,
    BrokerReport,
    FlowReport,
    GroupReport,
    PartitionReport,
    PartReport,
)
from partq.coordinator.view import SessionTotals
from partq.core.group.handoff import Attempt, AwaitDrain, Cancel, Commit, Pause
from partq.core.model import BrokerEpoch, BrokerId, Epoch, MemberId, PartitionId
from partq.core.parts.part_id import PartId, partition_of
from partq.errors import InternalError, PartqError, UnavailableError
from partq.path_names import quoted
from partq.wire.calls import replies
from partq.wire.calls.answers import (
    UNSET,
    ClaimResults,
    CommitResult,
    CommitResults,
    DrainResult,
    DrainResults,
    PartitionResult,
    PartitionResults,
    Refusal,
)
from partq.wire.calls.bodies import (
    Cancels,
    CommitItem,
    Commits,
    DrainItem,
    Drains,
    PartitionNames,
    PauseItem,
    Pauses,
)
from partq.wire.calls.group.parts import (
    NOBODY,
    PartCommitItem,
    PartCommits,
    PartResult,
    PartResults,
    PartsDetail,
)
from partq.wire.calls.state import BrokerState, FlowDetail, GroupDetail, LostFlowDetail
from partq.wire.tls import explain

CALL_TIMEOUT_S = 2.0
"""How long a call may take beside what it is asked to wait."""
CLAIM_TIMEOUT_S = 10.0
"""How long a claim or a yield may take: acks are stored and records read for each partition."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_BLOCKED_CHARS = 500
"""How much is kept of what a broker says of dead letters that are not stored."""
UNREADABLE = (KeyError, ValueError, OverflowError)
"""Errors of an answer with the right fields and impossible values."""

Anything = dict[str, object]
T = TypeVar("T")
Results = TypeVar(
    "Results", bound=DrainResults | CommitResults | PartitionResults | ClaimResults | PartResults
)


class HttpBrokerAdmin:
    """Calls the brokers of one queue; the session stays its owner's.

    `trust`: how their certificates are checked; None: by the system's CAs.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        *,
        queue: str,
        token: str,
        trust: ssl.SSLContext | None = None,
    ) -> None:
        self._session = session
        self._trust = trust
        self._path = f"/admin/v1/queues/{quoted(queue, 'queue')}"
        self._headers = {"Authorization": f"Bearer {token}"}

    async def state(self, url: str) -> BrokerReport:
        """Return the partitions of a broker and its bound members.

        Raises:
            PartqError: no answer, or none that can be read.
        """
        state = await self._call("GET", url, "/state", None, CALL_TIMEOUT_S, BrokerState)
        try:
            return report_of(state)
        except UNREADABLE as error:
            raise _unreadable(f"{url}/state", error) from error

    async def pause(
        self, url: str, group: str, pauses: Mapping[PartitionId, Pause], *, lease_ms: int
    ) -> Sequence[Answer]:
        """Stop delivering for `lease_ms` from now."""
        items = [
            PauseItem(*_fence(partition, pause.attempt), lease_ms, pause.drain_ms)
            for partition, pause in pauses.items()
        ]
        return await self._post(url, _of_group(group, "pause"), Pauses(items), DrainResults)

    async def drain(
        self, url: str, group: str, drains: Mapping[PartitionId, AwaitDrain], *, wait_ms: int
    ) -> Sequence[Answer]:
        """Wait up to `wait_ms` until one of the drains is over."""
        items = [
            DrainItem(*_fence(partition, drain.attempt)) for partition, drain in drains.items()
        ]
        return await self._post(
            url,
            _of_group(group, "drain"),
            Drains(items, wait_ms),
            DrainResults,
            timeout_s=CALL_TIMEOUT_S + wait_ms / 1000,
        )

    async def commit(
        self, url: str, group: str, commits: Mapping[PartitionId, Commit]
    ) -> Sequence[Answer]:
        """Record the targets."""
        items = [
            CommitItem(
                *_fence(partition, commit.attempt),
                source=commit.attempt.source or "",
                target=commit.attempt.target or "",
                forced=commit.forced or "",
            )
            for partition, commit in commits.items()
        ]
        return await self._post(url, _of_group(group, "commit"), Commits(items), CommitResults)

    async def commit_parts(
        self, url: str, group: str, commits: Mapping[PartitionId, Commit]
    ) -> Sequence[Answer]:
        """Record the targets of parts."""
        items = [
            PartCommitItem(
                *_fence(partition_of(seat), commit.attempt),
                source=commit.attempt.source or "",
                target=commit.attempt.target or "",
                forced=commit.forced or "",
                part=seat.part,
                drain_ms=commit.attempt.keys_ms or 0,
            )
            for seat, commit in commits.items()
            if isinstance(seat, PartId)
        ]
        return await self._post(url, _of_group(group, "parts"), PartCommits(items), PartResults)

    async def cancel(
        self, url: str, group: str, cancels: Mapping[PartitionId, Cancel]
    ) -> Sequence[Answer]:
        """Let the sources continue."""
        items = [
            DrainItem(*_fence(partition, cancel.attempt)) for partition, cancel in cancels.items()
        ]
        return await self._post(url, _of_group(group, "cancel"), Cancels(items), PartitionResults)

    async def claim(self, url: str, partitions: Sequence[PartitionId]) -> Sequence[Answer]:
        """Make the broker the owner of partitions that no living broker owns."""
        return await self._post(
            url, "/claim", _names(partitions), ClaimResults, timeout_s=CLAIM_TIMEOUT_S
        )

    async def yield_(self, url: str, partitions: Sequence[PartitionId]) -> Sequence[Answer]:
        """Make the broker give partitions up."""
        return await self._post(
            url, "/yield", _names(partitions), PartitionResults, timeout_s=CLAIM_TIMEOUT_S
        )

    async def refresh(self, url: str) -> None:
        """Let the broker read the layout now.

        Raises:
            PartqError: no answer, or a refusal, as of a broker that does not know the call.
        """
        await self._call("POST", url, "/refresh", None, CALL_TIMEOUT_S, Anything)

    async def _post(
        self,
        url: str,
        path: str,
        body: object,
        kind: type[Results],
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> list[Answer]:
        answer = await self._call("POST", url, path, body, timeout_s, kind)
        try:
            return [_answer(result) for result in answer.results]
        except UNREADABLE as error:
            raise _unreadable(f"{url}{path}", error) from error

    async def _call(
        self, method: str, url: str, path: str, body: object, timeout_s: float, kind: type[T]
    ) -> T:
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(
                    method,
                    url + self._path + path,
                    json=None if body is None else replies.plain(body),
                    headers=self._headers,
                    allow_redirects=False,  # no broker sends its caller elsewhere
                    ssl=True if self._trust is None else self._trust,
                ) as response,
            ):
                text = await _read(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(
                f"broker {url}{path}: {explain(error) or repr(error)}"
            ) from error
        try:
            if response.status == 204:
                text = b"{}"
            elif response.status != 200:
                raise _error(f"broker {url}{path}: status {response.status}", text)
            return replies.decode(text, kind)
        except replies.NotJsonError:
            raise InternalError(
                f"broker {url}{path}: status {response.status}, and no JSON; is something between "
                "the coordinator and it?"
            ) from None
        except ValueError as error:
            raise _unreadable(f"{url}{path}", error) from error


async def _read(response: aiohttp.ClientResponse) -> bytes:
    chunks = response.content.iter_any()
    return await replies.read_whole(chunks, MAX_ANSWER_BYTES, f"broker {response.url}")


def _of_group(group: str, call: str) -> str:
    return f"/groups/{quoted(group, 'group')}/{call}"


def _error(where: str, text: bytes) -> PartqError:
    """Return the error of an answer.

    Raises:
        NotJsonError: it is not JSON.
    """
    try:
        return replies.to_error(replies.decode(text, Refusal).error, f"{where}: ")
    except replies.NotJsonError:
        raise
    except ValueError:
        return InternalError(where)


def _unreadable(where: str, error: Exception) -> InternalError:
    return InternalError(
        f"broker {where}: its answer cannot be read: {error}; run brokers and "
        "coordinator in the same version"
    )


def _fence(partition: PartitionId, attempt: Attempt) -> tuple[str, int, int, int]:
    return str(partition), attempt.broker_epoch, attempt.epoch, attempt.number


def _names(partitions: Iterable[PartitionId]) -> PartitionNames:
    return PartitionNames([str(partition) for partition in partitions])


def _answer(result: PartitionResult) -> Answer:
    partition = PartitionId.parse(result.partition)
    if isinstance(result, PartResult):
        partition = PartId.of(partition, result.part)
    if result.error is not UNSET:
        return Answer(partition=partition, code=result.error.code, message=result.error.message)
    match result:
        case DrainResult(is_drained=True):
            return Answer(partition=partition, is_drained=True)
        case CommitResult(epoch=int(epoch)) | PartResult(epoch=int(epoch)):
            return Answer(partition=partition, epoch=Epoch(epoch))
        case _:
            return Answer(partition=partition)


def report_of(state: BrokerState) -> BrokerReport:
    """Return what a broker says of itself.

    Raises:
        ValueError, OverflowError: a name is no partition's, or an age is no number of a broker.
    """
    return BrokerReport(
        broker=BrokerId(state.broker),
        incarnation=state.incarnation,
        partitions={
            PartitionId.parse(name): PartitionReport(
                broker_epoch=BrokerEpoch(detail.broker_epoch),
                held_ms=_ms(detail.held_s),
                groups={group: _group(seen) for group, seen in detail.groups.items()},
                opened_after_ms=None
                if detail.opened_after_s is UNSET
                else _ms(detail.opened_after_s),
            )
            for name, detail in state.partitions.items()
        },
        flows=[_flow(flow, flow.address, flow.bound_s) for flow in state.flows],
        lost_flows=[_flow(flow, "", flow.lost_s) for flow in state.lost_flows],
        is_quota_used_up=state.is_quota_used_up,
    )


def _group(detail: GroupDetail) -> GroupReport:
    missing = detail.missing[:MAX_BLOCKED_CHARS]
    return GroupReport(
        member=MemberId(detail.member) if detail.member else None,
        epoch=Epoch(detail.epoch),
        closed_attempt=detail.attempt,
        is_bound=detail.is_bound,
        pause_attempt=detail.pause_attempt or None,
        blocked="" if missing else detail.blocked[:MAX_BLOCKED_CHARS],
        missing=missing,
        stalled=(detail.stands_still or "")[:MAX_BLOCKED_CHARS],
        blocked_keys=detail.blocked_keys or 0,
        quarantined_keys=detail.quarantined_keys or 0,
        parked=detail.parked[:MAX_BLOCKED_CHARS],
        dead_letters=detail.dead_letters,
        registered_ms=None if detail.registered_s is UNSET else _ms(detail.registered_s),
        sessions=_sessions(detail),
        parts=() if detail.parts is UNSET else list(_parts(detail.parts)),
    )


def _sessions(detail: GroupDetail) -> SessionTotals | None:
    counts = detail.sessions
    if counts is UNSET:
        return None
    return SessionTotals(counts.with_messages, counts.locked, counts.waiting)


def _parts(detail: PartsDetail) -> Iterator[PartReport]:
    for place, attempt in zip(detail.of, detail.attempts, strict=True):
        if place == NOBODY:
            yield PartReport(None, attempt, is_bound=False)
        elif 0 <= place < min(len(detail.members), len(detail.bound)):
            yield PartReport(MemberId(detail.members[place]), attempt, detail.bound[place])
        else:
            raise ValueError(f"part of member {place}, of {len(detail.members)} members")


def _flow(flow: FlowDetail | LostFlowDetail, address: str, age_s: float) -> FlowReport:
    return FlowReport(
        group=flow.group,
        member=MemberId(flow.member),
        incarnation=flow.incarnation,
        address=address,
        age_ms=_ms(age_s),
        is_leaving=flow.is_leaving,
        priority=flow.priority,
        ranges=tuple(flow.ranges or ()),
    )


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
