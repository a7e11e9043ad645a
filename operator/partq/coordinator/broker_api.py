"""The brokers' admin API over HTTP."""

import asyncio
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import aiohttp

from partq.coordinator.ports import (
    Answer,
    BrokerReport,
    FlowReport,
    GroupReport,
    PartitionReport,
)
from partq.core.group.handoff import Attempt, AwaitDrain, Cancel, Commit, Pause
from partq.core.model import BrokerEpoch, BrokerId, Epoch, MemberId, PartitionId
from partq.errors import InternalError, PartqError, UnavailableError, from_code
from partq.wire.calls import replies
from partq.wire.tls import explain

CALL_TIMEOUT_S = 2.0
"""How long a call may take beside what it is asked to wait."""
CLAIM_TIMEOUT_S = 10.0
"""How long a claim or a yield may take: acks are stored and records read for each partition."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_BLOCKED_CHARS = 500
"""How much is kept of what a broker says of dead letters that are not stored."""
MAX_NUMBER = 2**63 - 1
"""The largest epoch, attempt or count that is taken: more is nothing that Redis holds."""
UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, OverflowError)
"""What reading an answer of another shape raises."""


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
        self._path = f"/admin/v1/queues/{queue}"
        self._headers = {"Authorization": f"Bearer {token}"}

    async def state(self, url: str) -> BrokerReport:
        """Return what a broker owns and who is bound there.

        Raises:
            PartqError: no answer, or none that can be read.
        """
        body = await self._call("GET", url, "/state", None, CALL_TIMEOUT_S)
        try:
            return read_state(body)
        except UNREADABLE as error:
            raise InternalError(
                f"broker {url}: its state cannot be read: {error!r}; brokers and coordinator need "
                "one version"
            ) from error

    async def pause(
        self, url: str, group: str, pauses: Mapping[PartitionId, Pause], *, lease_ms: int
    ) -> Sequence[Answer]:
        """Stop delivering for `lease_ms` from now."""
        items = [
            {
                **_fence(partition, pause.attempt),
                "lease_ms": lease_ms,
                "drain_ms": pause.drain_ms,
            }
            for partition, pause in pauses.items()
        ]
        return await self._post(url, f"/groups/{group}/pause", {"pauses": items})

    async def drain(
        self, url: str, group: str, drains: Mapping[PartitionId, AwaitDrain], *, wait_ms: int
    ) -> Sequence[Answer]:
        """Wait up to `wait_ms` until one of the drains is over."""
        items = [_fence(partition, drain.attempt) for partition, drain in drains.items()]
        return await self._post(
            url,
            f"/groups/{group}/drain",
            {"drains": items, "wait_ms": wait_ms},
            timeout_s=CALL_TIMEOUT_S + wait_ms / 1000,
        )

    async def commit(
        self, url: str, group: str, commits: Mapping[PartitionId, Commit]
    ) -> Sequence[Answer]:
        """Record the targets."""
        items = [
            {
                **_fence(partition, commit.attempt),
                "source": commit.attempt.source or "",
                "target": commit.attempt.target or "",
                "cause": commit.forced or "",
            }
            for partition, commit in commits.items()
        ]
        return await self._post(url, f"/groups/{group}/commit", {"commits": items})

    async def cancel(
        self, url: str, group: str, cancels: Mapping[PartitionId, Cancel]
    ) -> Sequence[Answer]:
        """Let the sources go on."""
        items = [_fence(partition, cancel.attempt) for partition, cancel in cancels.items()]
        return await self._post(url, f"/groups/{group}/cancel", {"cancels": items})

    async def claim(self, url: str, partitions: Sequence[PartitionId]) -> Sequence[Answer]:
        """Make the broker the owner of partitions that no living broker owns."""
        body = {"partitions": _names(partitions)}
        return await self._post(url, "/claim", body, timeout_s=CLAIM_TIMEOUT_S)

    async def yield_(self, url: str, partitions: Sequence[PartitionId]) -> Sequence[Answer]:
        """Make the broker give partitions up."""
        body = {"partitions": _names(partitions)}
        return await self._post(url, "/yield", body, timeout_s=CLAIM_TIMEOUT_S)

    async def _post(
        self, url: str, path: str, body: Mapping[str, Any], timeout_s: float = CALL_TIMEOUT_S
    ) -> list[Answer]:
        answer = await self._call("POST", url, path, body, timeout_s)
        try:
            return [_answer(result) for result in answer["results"]]
        except UNREADABLE as error:
            raise InternalError(
                f"broker {url}{path}: got {error!r} in its answer; brokers and coordinator need "
                "one version"
            ) from error

    async def _call(
        self, method: str, url: str, path: str, body: Mapping[str, Any] | None, timeout_s: float
    ) -> Any:
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(
                    method,
                    url + self._path + path,
                    json=body,
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
            answer = replies.parse(text)
        except ValueError:
            raise InternalError(
                f"broker {url}{path}: status {response.status}, and no JSON; is something between "
                "the coordinator and it?"
            ) from None
        if response.status != 200:
            raise _error(f"broker {url}{path}: status {response.status}", answer)
        return answer


async def _read(response: aiohttp.ClientResponse) -> bytes:
    chunks = bytearray()
    async for chunk in response.content.iter_any():
        chunks += chunk
        if len(chunks) > MAX_ANSWER_BYTES:
            raise InternalError(
                f"broker {response.url}: an answer too long, expected at most {MAX_ANSWER_BYTES}"
            )
    return bytes(chunks)


def _error(where: str, answer: Any) -> PartqError:
    error = answer.get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return InternalError(where)
    return from_code(str(error.get("code")), f"{where}: {error.get('message')}")


def _fence(partition: PartitionId, attempt: Attempt) -> dict[str, Any]:
    return {
        "partition": str(partition),
        "broker_epoch": attempt.broker_epoch,
        "epoch": attempt.epoch,
        "attempt": attempt.number,
    }


def _names(partitions: Iterable[PartitionId]) -> list[str]:
    return [str(partition) for partition in partitions]


def _answer(result: Mapping[str, Any]) -> Answer:
    partition = PartitionId.parse(result["partition"])
    if error := result.get("error"):
        return Answer(
            partition=partition, code=str(error["code"]), message=str(error.get("message", ""))
        )
    epoch = result.get("epoch")
    return Answer(
        partition=partition,
        is_drained=bool(result.get("is_drained", False)),
        epoch=None if epoch is None else Epoch(_number(epoch)),
    )


def read_state(body: Mapping[str, Any]) -> BrokerReport:
    """Read what a broker says of itself.

    Raises:
        KeyError, TypeError, ValueError, AttributeError, OverflowError: it is something else.
    """
    return BrokerReport(
        broker=BrokerId(str(body["broker"])),
        incarnation=str(body["incarnation"]),
        partitions={
            PartitionId.parse(name): PartitionReport(
                broker_epoch=BrokerEpoch(_number(report["broker_epoch"])),
                held_ms=_ms(report["held_s"]),
                groups={group: _group(seen) for group, seen in report["groups"].items()},
            )
            for name, report in body["partitions"].items()
        },
        flows=[_flow(flow, "bound_s") for flow in body["flows"]],
        lost_flows=[_flow(flow, "lost_s") for flow in body["lost_flows"]],
        is_quota_used_up=bool(body.get("is_quota_used_up", False)),
    )


def _group(report: Mapping[str, Any]) -> GroupReport:
    pause_attempt = report.get("pause_attempt")
    missing = str(report.get("missing", ""))[:MAX_BLOCKED_CHARS]
    return GroupReport(
        member=MemberId(str(report["member"])) if report["member"] else None,
        epoch=Epoch(_number(report["epoch"])),
        closed_attempt=_number(report["attempt"]),
        is_bound=bool(report["is_bound"]),
        pause_attempt=_number(pause_attempt) if pause_attempt else None,
        blocked="" if missing else str(report.get("blocked", ""))[:MAX_BLOCKED_CHARS],
        missing=missing,
        parked=str(report.get("parked", ""))[:MAX_BLOCKED_CHARS],
        dead_letters=_number(report.get("dead_letters", 0)),
    )


def _flow(flow: Mapping[str, Any], age: str) -> FlowReport:
    return FlowReport(
        group=str(flow["group"]),
        member=MemberId(str(flow["member"])),
        incarnation=str(flow["incarnation"]),
        address=str(flow.get("address", "")),
        age_ms=_ms(flow[age]),
        is_leaving=bool(flow.get("is_leaving", False)),
    )


def _ms(seconds: float) -> int:
    return max(0, round(float(seconds) * 1000))


def _number(value: Any) -> int:
    number = int(value)
    if abs(number) > MAX_NUMBER:
        raise ValueError(f"a number of {len(str(number))} digits")
    return number
