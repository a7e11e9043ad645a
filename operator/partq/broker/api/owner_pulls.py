"""Pulls of all brokers: the one that is asked pulls at the owners, and returns what they answer."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from partq.aio import Backoffs, cancel_and_wait
from partq.broker.api.app_keys import PULLS
from partq.broker.api.endpoints import EnteredCall
from partq.broker.api.owner_calls import caller_address, forward_headers
from partq.broker.operations.pull.pull_answer import MAX_ANSWER_BYTES, joined
from partq.broker.operations.pull.pulls import PullWait, check_bounds
from partq.broker.peers.peer_client import FORWARDED, PeerClient, UnansweredError
from partq.core.model import MemberId
from partq.errors import OverloadedError, PartqError, UnavailableError
from partq.server.body import HOLD, JSON_WEIGHT
from partq.wire.calls import body_codec
from partq.wire.calls.answers import ErrorDetail, Left, PullAnswer, PulledMessage
from partq.wire.calls.bodies import PullBody
from partq.wire.calls.replies import decode, error_detail, plain

OWNER_ANSWER_S = 2.0
"""How long an owner may take to answer beyond the wait that it was asked for, in seconds."""
MAX_FORWARDED = 1000
"""The most pulls of this broker that owners have not answered yet."""
FIRST_REST_S, MOST_REST_S = 1.0, 8.0
"""How long an owner that does not answer is not asked again, at first and at most."""

MAX_PAUSE_S = 1.0
"""How long a pull without messages is held up whose wait was ended, in seconds."""

PullHere = Callable[[PullBody, PullWait | None], Awaitable[PullAnswer]]
"""Pulls at this broker."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What one broker answers."""

    broker: str
    answer: PullAnswer | PartqError
    messages: tuple[bytes, ...] = ()
    """As JSON."""

    @property
    def is_news(self) -> bool:
        """Whether a pull does not wait on: there are messages, or the member is to give back."""
        is_to_give_back = isinstance(self.answer, PullAnswer) and bool(self.answer.paused)
        return bool(self.messages) or is_to_give_back


class OwnerPulls:
    """Pulls that this broker makes at others for its callers.

    It keeps nothing of the messages: an answer that no later pull names is given again by its
    owner, so what is left out here, or lost on its way, is pulled by the next call, at any broker.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._peers: PeerClient | None = None
        self._silent: Backoffs[str] = Backoffs(FIRST_REST_S, MOST_REST_S)
        self._forwarded = 0

    def connect(self, peers: PeerClient) -> None:
        """Begin to call others, by connections of which pulls that wait may take all."""
        self._peers = peers

    async def pull(self, call: EnteredCall, body: PullBody, here: PullHere) -> PullAnswer:
        """Return messages of all brokers that own partitions; wait until one has some.

        An owner that does not answer costs its own partitions, and is told in `failed`.

        Raises:
            BadRequestError: a number is out of bounds; nothing was delivered.
            OverloadedError: too many pulls wait at owners; nothing was delivered.
            PartqError: as a pull at this broker; what others have delivered is given again.
        """
        check_bounds(body.max_messages, body.wait_ms)
        pulls = call.request.app[PULLS]
        pulls.refuse_left(call.group, body.member, body.incarnation, caller_address(call))
        until = self._clock() + body.wait_ms / 1000
        owners = self._owners(call)
        if self._forwarded + len(owners) > MAX_FORWARDED:
            raise OverloadedError(
                f"{self._forwarded} pulls wait at other brokers, expected at most {MAX_FORWARDED}: "
                "pull again, or at another broker",
                retry_after_s=1.0,
            )
        if not owners:
            return await self._pull_alone(call, body, here)
        share = max(1, body.max_messages // (len(owners) + 1))
        last = dict(body.last_answers)
        parts = await self._round(call, body, here, owners, last, share=share, wait_s=0.0)
        if not any(part.is_news for part in parts) and (left_s := until - self._clock()) > 0:
            failed = {part.broker for part in parts if isinstance(part.answer, PartqError)}
            numbers = last | _numbers(parts)
            answering = {b: url for b, url in owners.items() if b not in failed}
            later = await self._round(
                call, body, here, answering, numbers, share=share, wait_s=left_s
            )
            newest = {part.broker: part for part in (*parts, *later)}
            parts = list(newest.values())
        answer = self._join(call, body, parts)
        pulls.note_left(call.group, body.member, answer)
        return answer

    async def _pull_alone(self, call: EnteredCall, body: PullBody, here: PullHere) -> PullAnswer:
        own = call.broker.id
        asked = _asked(body, body.max_messages, body.wait_ms, body.last_answers.get(own))
        answer = await here(asked, None)
        answer.answers, answer.failed = {own: answer.answer}, {}
        return answer

    def _owners(self, call: EnteredCall) -> dict[str, str]:
        """Return the URLs of the other living brokers that own partitions."""
        claims = call.broker.claims
        leases = claims.living()
        return {
            owner: leases[owner].url
            for owner in sorted(set(claims.owners.values()))
            if owner in leases and owner != call.broker.id
        }

    async def _round(
        self,
        call: EnteredCall,
        body: PullBody,
        here: PullHere,
        owners: dict[str, str],
        numbers: dict[str, int],
        *,
        share: int,
        wait_s: float,
    ) -> list[_Part]:
        """Pull at every broker; return all answers, or with a wait those up to the first news."""
        until = self._clock() + wait_s
        own, wait = call.broker.id, PullWait()

        async def pull_here() -> _Part:
            asked = _asked(body, share, round(wait_s * 1000), numbers.get(own))
            answer = await here(asked, wait)
            raw = body_codec.encode(answer.messages)
            call.request[HOLD].take(JSON_WEIGHT * len(raw))
            answer.messages = decode(raw, list[PulledMessage])
            return _part(own, answer)

        mine = asyncio.create_task(pull_here())
        theirs = [
            asyncio.create_task(
                self._pull_at(call, body, owner, url, numbers.get(owner), share, wait_s)
            )
            for owner, url in owners.items()
        ]
        try:
            waiting: set[asyncio.Task[_Part]] = {mine, *theirs}
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if wait_s and any(task.result().is_news for task in done):
                    break
                if mine in done:
                    mine.result()  # without this broker there is no answer
            else:
                # A newer pull of the member has ended the waits: two must not chase each other.
                await asyncio.sleep(min(MAX_PAUSE_S, max(0.0, until - self._clock())))
            # Its answer is kept: to cancel it half-way would cost the member its flow.
            wait.end()
            await mine
            return [task.result() for task in (mine, *theirs) if task.done()]
        finally:
            await cancel_and_wait(mine, *theirs)

    async def _pull_at(
        self,
        call: EnteredCall,
        body: PullBody,
        owner: str,
        url: str,
        number: int | None,
        share: int,
        wait_s: float,
    ) -> _Part:
        if not self._silent.may_try(owner, self._clock()):
            return _Part(owner, _unanswered(owner, "it has not answered just now"))
        if self._peers is None:
            return _Part(owner, _unanswered(owner, "this broker is starting"))
        request = call.request
        async with self._counted():
            try:
                answer = await self._peers.call(
                    request.method,
                    url + request.path,
                    PullAnswer,
                    authorization=request.headers["Authorization"],
                    headers=forward_headers(call),
                    json=plain(_asked(body, share, round(wait_s * 1000), number)),
                    timeout_s=wait_s + OWNER_ANSWER_S,
                    hold=request[HOLD],
                )
            except UnansweredError as error:
                self._silent.failed(owner, self._clock())
                return _Part(owner, _unanswered(owner, str(error)))
            except PartqError as error:
                return _Part(owner, error)
        self._silent.succeeded(owner)
        return _part(owner, answer)

    @asynccontextmanager
    async def _counted(self) -> AsyncIterator[None]:
        self._forwarded += 1
        try:
            yield
        finally:
            self._forwarded -= 1

    def _join(self, call: EnteredCall, body: PullBody, parts: Sequence[_Part]) -> PullAnswer:
        """Return one answer: of each broker all of its messages, or none.

        What finds no room is given again by its owner. Which broker is the first is drawn: with
        turns, two members that pull in step would each have the same one every time.
        """
        turn = random.randrange(len(parts))  # noqa: S311  a turn, not secrecy
        messages: list[bytes] = []
        size_bytes = 0
        known = call.broker.claims.observer.leases
        numbers = {b: number for b, number in body.last_answers.items() if b in known}
        held: set[str] = set()
        paused: set[str] = set()
        failed: dict[str, ErrorDetail] = {}
        own: PullAnswer | None = None
        for part in (*parts[turn:], *parts[:turn]):
            if isinstance(part.answer, PartqError):
                failed[part.broker] = error_detail(part.answer)
                continue
            if part.broker == call.broker.id:
                own = part.answer
            held.update(part.answer.held)
            paused.update(part.answer.paused)
            more_bytes = sum(map(len, part.messages))
            if messages and (
                len(messages) + len(part.messages) > body.max_messages
                or size_bytes + more_bytes > MAX_ANSWER_BYTES
            ):
                continue
            messages += part.messages
            size_bytes += more_bytes
            numbers[part.broker] = part.answer.answer
        if own is None:
            raise UnavailableError("pull: this broker has not answered itself; pull again")
        return PullAnswer(
            answer=own.answer,
            flow=own.flow,
            lease_ms=own.lease_ms,
            messages=joined(messages),
            held=sorted(held),
            paused=sorted(paused),
            others=own.others,
            answers=numbers,
            failed=failed,
        )


OWNER_PULLS = web.AppKey("owner_pulls", OwnerPulls)


def _asked(body: PullBody, share: int, wait_ms: int, number: int | None) -> PullBody:
    """Return the pull at one broker."""
    return PullBody(
        body.member, body.incarnation, share, wait_ms, number, body.priority, body.ranges
    )


def _part(broker: str, answer: PullAnswer) -> _Part:
    """Return a broker's part, without messages whose partition the member no longer has."""
    held = set(answer.held)
    kept = [body_codec.encode(each) for each in answer.messages if each.partition in held]
    return _Part(broker, answer, tuple(kept))


def _numbers(parts: Sequence[_Part]) -> dict[str, int]:
    return {
        part.broker: part.answer.answer for part in parts if isinstance(part.answer, PullAnswer)
    }


def _unanswered(owner: str, why: str) -> UnavailableError:
    return UnavailableError(
        f"broker {owner}: no usable answer ({why}); pull again for the messages of its partitions",
        retry_after_s=1.0,
    )


async def leave_all(call: EnteredCall, peers: PeerClient) -> Left:
    """Note at every broker that a member leaves; return what it still holds.

    Raises:
        ForbiddenError: it is bound here from another address than the call comes from.
    """
    broker, request = call.broker, call.request
    flow = broker.flow_registry.find(call.group, MemberId(request.match_info["member"]))
    if flow is not None:
        flow.check_address(caller_address(call))
        broker.flow_registry.leave(flow)
    held = {str(each.partition) for each in flow.partitions} if flow is not None else set()
    failed: dict[str, ErrorDetail] = {}

    async def leave_at(other: str, url: str) -> None:
        try:
            left = await peers.call(
                request.method,
                url + request.path,
                Left,
                authorization=request.headers["Authorization"],
                headers=forward_headers(call),
                timeout_s=OWNER_ANSWER_S,
                hold=request[HOLD],
            )
            held.update(left.held)
        except UnansweredError as error:
            failed[other] = error_detail(_unanswered(other, str(error)))
        except PartqError as error:
            failed[other] = error_detail(error)

    if FORWARDED not in request.headers:
        others = {b: lease.url for b, lease in broker.claims.living().items() if b != broker.id}
        await asyncio.gather(*(leave_at(*each) for each in others.items()))
    return Left(sorted(held), failed)
