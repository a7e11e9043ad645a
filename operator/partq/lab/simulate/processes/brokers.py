"""A simulated broker process: the real broker, its connections and its admin calls."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from partq.broker.api.frame_socket import FrameSocket
from partq.broker.api.routes.flow import ConsumerConnection
from partq.broker.api.routes.publish_socket import ProducerConnection
from partq.broker.broker import Broker
from partq.broker.operations import coordinator_calls
from partq.broker.operations.assignment.configured_partitions import read_configured
from partq.broker.operations.assignment.registration import register, unregister
from partq.broker.operations.parked_keys import release
from partq.broker.operations.pull.acks import ack_one, ack_outcome
from partq.broker.operations.pull.pulls import Pulls
from partq.broker.operations.reset import find_births, find_kept, reset
from partq.broker.operations.status import read_layout
from partq.broker.rescale.whole_reset import Results, reset_all
from partq.core.model import MemberId, PartitionId
from partq.errors import (
    FencedError,
    NotStoredError,
    OutcomeUnknownError,
    PartqError,
    UnavailableError,
    from_code,
)
from partq.lab.simulate.machine.loop import Process, SimLoop
from partq.lab.simulate.machine.network import End, Ending, Plain
from partq.lab.simulate.machine.stored import EPOCH_S, SimStore
from partq.lab.simulate.oracle.facts import GROUP, facts_name
from partq.lab.simulate.oracle.keys.session_deliveries import SessionDeliveries
from partq.lab.simulate.oracle.letters import TARGET as LETTER_PARTITION
from partq.lab.simulate.oracle.oracle import Oracle
from partq.path_names import quoted
from partq.settings import BrokerSettings
from partq.store.keys import Keys
from partq.store.records.log import AppendResult
from partq.wire import frames
from partq.wire.calls import bodies, body_codec
from partq.wire.calls.answers import ItemResults, Refusal, ResetResult
from partq.wire.calls.group.parts import PartCommits
from partq.wire.calls.registration import RegisterBody, Unregistered, UnregisterQuery
from partq.wire.calls.replies import error_detail, plain
from partq.wire.sessions.session_calls import ClosedSession, SessionLockBody

QUEUE: Final = "queue"
UID: Final = "00000001"
LETTER_QUEUE: Final = "letters"
LETTER_UID: Final = "00000002"
TARGET: Final = "target"
"""The broker of the queue that dead letters go to."""
LEASE_S: Final = 1.0
POST_WAIT_S: Final = 5.0
OWNER_TIMEOUT_S: Final = 4.0
"""How long a broker may take for its part of a reset."""

_BODIES: Final[dict[str, tuple[Callable[[Broker, str, Plain], Awaitable[object]], type[Plain]]]] = {
    "pause": (coordinator_calls.pause, bodies.Pauses),
    "drain": (coordinator_calls.drain, bodies.Drains),
    "commit": (coordinator_calls.commit, bodies.Commits),
    "cancel": (coordinator_calls.cancel, bodies.Cancels),
    "parts": (coordinator_calls.commit_parts, PartCommits),
}


class SimFrameSocket:
    """What a broker's connection is to the code that serves it: a `FrameSocket` without a wire."""

    def __init__(self, end: End, watcher: Oracle) -> None:
        self._end = end
        self._watcher = watcher
        self._good: frames.Ack | None = None
        """An ack behind which one may come that must not count."""

    @property
    def was_cut(self) -> bool:
        """Whether the connection has ended without a close frame of the client."""
        return self._end.ending is not Ending.CLOSED

    async def receive(self) -> tuple[frames.AnyFrame, bytes]:
        """Return the next frame and its payload."""
        good, self._good = self._good, None
        if good is not None and (hostile := self._watcher.hostile(self._end, good)) is not None:
            return hostile, b""
        frame, payload = frames.decode(await self._end.receive())
        if isinstance(frame, frames.Ack):
            self._watcher.got(self._end, frame)
            self._good = frame
        elif isinstance(frame, frames.Release | frames.Returned | frames.Nack):
            self._watcher.gave_back(self._end, frame)
        elif isinstance(frame, frames.Bind | frames.Credit):
            self._watcher.shared.liveness.has_room(self._end, frame)
        if isinstance(self._watcher.shared, SessionDeliveries):
            self._watcher.shared.received(self._end, frame)
        return frame, payload

    async def send(self, data: bytes) -> None:
        """Send a frame."""
        self._end.send(data)

    async def close(self) -> None:
        """End the connection."""
        self._end.close()

    def cut(self) -> None:
        """End the connection."""
        self._end.close()


class BrokerProcess:
    """One life of a broker."""

    def __init__(
        self,
        name: str,
        process: Process,
        watcher: Oracle,
        clock: Callable[[], float],
        keys: Keys,
        on_failed: Callable[["BrokerProcess"], None],
    ) -> None:
        """Prepare it; `on_failed`: told that it has ended by itself."""
        self._keys = keys
        self._on_failed = on_failed
        self.name = name
        self.process = process
        self.broker: Broker | None = None
        self._pulls: Pulls
        self._watcher = watcher
        self._clock = clock
        self._terminated = asyncio.Event()
        self._ends: dict[End, None] = {}
        self._renewals = 0
        self._unregister_count = 0
        """Each such call pauses its partition, as an attempt of a coordinator does."""
        watcher.records.plans.on_renewed[process] = self._renewed

    async def run(self) -> None:
        """Serve until told to end; another life of the same name ends this one."""
        store = await SimStore.wait_for()
        settings = BrokerSettings(
            queue=self._keys.queue,
            queue_uid=self._keys.uid,
            redis_url="redis://simulated",
            broker_id=self.name,
            tokens_file=Path("/dev/null"),
            lease_ttl_s=LEASE_S,
        )
        broker = Broker(
            settings,
            store,
            url=f"http://{self.name}",
            clock=self._clock,
            wall_clock=lambda: EPOCH_S + self._clock(),
        )
        self.broker, self._pulls = broker, Pulls(broker)
        broker.dead_letters.connect(_Target())
        broker.start()
        stopping = asyncio.create_task(self._terminated.wait())
        ends: list[asyncio.Future[Any]] = [stopping, broker.failed]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        await broker.close()
        for end in [*self._ends]:
            end.close()
        await store.close()
        if broker.failed.done():
            with suppress(FencedError):
                broker.failed.result()
            self._on_failed(self)

    def _renewed(self) -> None:
        """Look, once the lease that Redis has just renewed is over, whether it is over here."""
        self._renewals += 1
        at = self._clock() + LEASE_S
        loop = cast(SimLoop, asyncio.get_running_loop())
        loop.at(at, partial(self._judge_lease, self._renewals))

    def _judge_lease(self, renewal: int) -> None:
        broker, is_last = self.broker, renewal == self._renewals
        if is_last and self.process.is_alive and broker is not None and broker.lease.is_valid:
            self._watcher.fail("S1", f"{self.name} counts on a lease that is over")

    def terminate(self) -> None:
        """Tell it to end, as SIGTERM does."""
        self._terminated.set()

    def accept(self, route: str, end: End) -> Coroutine[Any, Any, None]:
        """Serve a connection."""
        return self._accept(route, end)

    async def _accept(self, route: str, end: End) -> None:
        broker = self.broker
        if broker is None or broker._config is None:
            end.close()
            return
        self._ends[end] = None
        socket = cast(FrameSocket, SimFrameSocket(end, self._watcher))
        try:
            if route == "/publish":
                await ProducerConnection(broker, socket).run()
            else:
                group = _group_in(route)
                if group not in broker.config.groups:
                    return
                end.on_sent = self._watcher.sending(broker, group, end)
                await ConsumerConnection(broker, socket, group, end.pipe.target).run()
        finally:
            end.close()
            del self._ends[end]

    def call(self, route: str, body: Plain) -> Coroutine[Any, Any, Plain]:
        """Answer a call."""
        return self._call(route, body)

    async def _call(self, route: str, body: Plain) -> Plain:
        """Return an answer as a caller reads it: plain values, as JSON has them."""
        try:
            return plain(await self._answer(route, body))
        except PartqError as error:
            return plain(Refusal(error_detail(error)))

    async def _answer(self, route: str, body: Plain) -> Plain:
        broker = self.broker
        if broker is None:
            raise ConnectionRefusedError(self.name)
        match route:
            case "/layout":
                return read_layout(broker)
            case "/state":
                return coordinator_calls.state(broker)
            case "/refresh":
                await broker.refresh()
                return {}
            case "/claim":
                return await coordinator_calls.claim(
                    broker, body_codec.decode(body, bodies.PartitionNames)
                )
            case "/yield":
                asked = body_codec.decode(body, bodies.PartitionNames)
                self._watcher.handoffs.asked_to_yield(asked.partitions)
                return await coordinator_calls.yield_(broker, asked)
            case "/pull":
                return await self._pull(body)
            case "/acks":
                return await self._ack(body_codec.decode(body_codec.encode(body), bodies.AckBody))
            case "/leave":
                broker.flow_registry.leave(
                    self._pulls.find(GROUP, body["member"], body["flow"], body["member"])
                )
                return {}
            case "/post":
                return await _post(broker, *body)
            case "/dead-letters":
                return await _take_letter(broker, *body)
            case _ if route.endswith("/partitions"):
                return await read_configured(broker, _group_in(route))
            case _ if route.endswith("/register"):
                member, partition, told = body
                return await register(
                    broker, partition, _group_in(route), member, RegisterBody(**told)
                )
            case _ if route.endswith("/unregister"):
                return await self._unregister(broker, _group_in(route), *body)
            case _ if route.endswith("/release"):
                partition, slot = body
                self._watcher.release(_group_in(route), slot)
                return plain(await release(broker, partition, _group_in(route), slot))
            case _ if route.endswith("/sessions/close"):
                lock = body_codec.decode(body_codec.encode(body), SessionLockBody)
                return await self._close_session(broker, lock)
            case _ if route.endswith("/reset-all"):
                return await self._reset_all(broker, _group_in(route), body)
            case _ if route.endswith("/reset"):
                partition, told = body
                wanted = body_codec.decode(body_codec.encode(told), bodies.ResetBody)
                return await reset(broker, partition, _group_in(route), wanted)
            case _:
                step, group = route.rpartition("/")[2], _group_in(route)
                work, kind = _BODIES[step]
                asked = body_codec.decode(body, kind)
                judge = self._watcher.handoffs.called(broker, group, step, asked)
                answer = await work(broker, group, asked)
                judge(plain(answer))
                return answer

    async def _close_session(self, broker: Broker, body: SessionLockBody) -> ClosedSession:
        """End a lock, as the route does where the partition is."""
        session, places = body.session, broker.sessions.places
        partition = places.of_lock(GROUP, session, body.lock) or places.all_of(session)[-1]
        flow = broker.flow_registry.find(GROUP, MemberId(body.member))
        shares = broker.sessions.shares_of(broker.find(partition).find(GROUP))
        share = shares.of_session(body.session) if shares is not None else None
        bound: object = share.flow if share is not None else None
        if flow is None or share is None or bound is not flow:
            return ClosedSession(was_locked=False)
        if flow.incarnation != body.incarnation or share.lock_of.number != body.lock:
            return ClosedSession(was_locked=False)
        cast(SessionDeliveries, self._watcher.shared).unlocked(body)
        closed: asyncio.Future[PartqError | None] = asyncio.get_running_loop().create_future()
        broker.sessions.close(share, None, closed.set_result)
        if (error := await closed) is not None:
            raise error
        return ClosedSession(was_locked=True)

    async def _unregister(
        self, broker: Broker, group: str, member: MemberId, partition: PartitionId, told: Plain
    ) -> Unregistered:
        self._unregister_count += 1
        name = facts_name(partition, group)
        if (owned := broker.owned.get(partition)) is not None:
            self._watcher.isolation.asked_to_pause(
                name, owned.broker_epoch, -self._unregister_count
            )
        return await unregister(broker, partition, group, member, UnregisterQuery(**told))

    async def _reset_all(self, broker: Broker, group: str, told: object) -> dict[str, object]:
        """Move the cursors of a group everywhere, as the route of a reset does."""
        network = cast(SimLoop, asyncio.get_running_loop()).network
        records, isolation = self._watcher.records, self._watcher.isolation
        path = f"/groups/{quoted(group, 'group')}"

        async def move_one(partition: PartitionId, body: bodies.ResetBody) -> ResetResult:
            facts = records.group_partitions[facts_name(partition, group)]
            isolation.disturb(facts.name, OWNER_TIMEOUT_S)
            call = (partition, plain(body))
            try:
                async with asyncio.timeout(OWNER_TIMEOUT_S):
                    answer = await network.call(facts.log.owner, f"{path}/reset", call)
            except OSError as error:  # a timeout, too
                failed = UnavailableError(f"partition {partition}: {error!r}")
                return ResetResult(error=error_detail(failed))
            if "error" not in answer:
                self._watcher.was_reset(facts, answer["to"])
            return body_codec.decode(body_codec.encode(answer), ResetResult)

        async def move(partitions: Sequence[PartitionId], body: bodies.ResetBody) -> Results:
            moved = await asyncio.gather(*(move_one(each, body) for each in partitions))
            return dict(zip(partitions, moved, strict=True))

        wanted = body_codec.decode(body_codec.encode(told), bodies.ResetBody)
        answers = await reset_all(
            wanted,
            move,
            group=group,
            find_kept=partial(find_kept, broker, group),
            find_births=partial(find_births, broker, group),
            store=broker.store,
            read_layout=lambda: broker.config.layout,
            refresh=broker.refresh,
        )
        return {str(each): plain(answer) for each, answer in answers.items()}

    async def _pull(self, body: Plain) -> Plain:
        pulled = await self._pulls.pull(group=GROUP, address=body["member"], **body)
        answer = body_codec.decode(body_codec.encode(pulled), dict[str, Plain])
        self._watcher.pulled(GROUP, (self, answer["flow"]), answer)
        return answer

    async def _ack(self, body: bodies.AckBody) -> ItemResults:
        broker = cast(Broker, self.broker)
        member, number, acks = cast(tuple[str, int, list[bodies.AckItem]], body.of_flow)
        flow = self._pulls.find(GROUP, member, number, member)
        for item in acks:
            token = (item.broker_epoch, item.epoch)
            self._watcher.handoffs.acked(broker, item.partition, token, item.offsets)
            self._watcher.keyed.acked(item.partition, token, item.offsets)
        outcomes = await asyncio.gather(*(ack_one(broker, flow, item) for item in acks))
        for item, outcome in zip(acks, outcomes, strict=True):
            if outcome is None:
                token = (item.broker_epoch, item.epoch)
                self._watcher.confirmed_ack(self.name, item.partition, token, item.offsets)
        return ItemResults([ack_outcome(outcome) for outcome in outcomes])


def _group_in(route: str) -> str:
    """Return the group that a route is about: /groups/GROUP/..."""
    return route.rpartition("/")[0].rpartition("/")[2]


async def _post(broker: Broker, partition: PartitionId, data: bytes) -> int:
    """Store a batch without numbers, as a POST does; return its first offset.

    Raises:
        PartqError: it is not stored, or its outcome is unknown.
    """
    outcome = await _publish(broker, partition, data, "", 0)
    if outcome.status != "stored":
        raise NotStoredError(outcome.status)
    return outcome.offset


async def _take_letter(
    broker: Broker, partition: PartitionId, data: bytes, producer: str, number: int
) -> dict[str, object]:
    """Store a dead letter of another queue, as its route does.

    Raises:
        PartqError: it is not stored, or its outcome is unknown.
    """
    outcome = await _publish(broker, partition, data, producer, number)
    if outcome.status not in {"stored", "duplicate"}:
        raise broker.quota.refusal(partition)
    return {"is_stored_before": outcome.status == "duplicate"}


async def _publish(
    broker: Broker, partition: PartitionId, data: bytes, producer: str, first: int
) -> AppendResult:
    answered: asyncio.Future[AppendResult | PartqError] = asyncio.get_running_loop().create_future()

    def reply(outcome: AppendResult | PartqError) -> None:
        if not answered.done():
            answered.set_result(outcome)

    broker.publish(partition, data, producer=producer, first=first, reply=reply)
    async with asyncio.timeout(POST_WAIT_S):
        outcome = await answered
    if isinstance(outcome, PartqError):
        raise outcome
    return outcome


class _Target:
    """The path to the queue that dead letters go to."""

    async def find_quarantined(self, queue: str, group: str, slots: Collection[int]) -> set[int]:
        """Return those of some slots that are in quarantine: nobody sends letters back here."""
        del queue, group, slots
        return set()

    async def send(self, queue: str, slot: int, data: bytes, producer: str, number: int) -> bool:
        """Have a batch of one message stored; False: its number is known there."""
        network = cast(SimLoop, asyncio.get_running_loop()).network
        body = (LETTER_PARTITION, data, producer, number)
        try:
            async with asyncio.timeout(POST_WAIT_S):
                answer = await network.call(TARGET, "/dead-letters", body)
        except (TimeoutError, OSError) as error:
            raise OutcomeUnknownError(f"queue {queue}: {error!r}") from error
        if "error" in answer:
            raise from_code(answer["error"]["code"], answer["error"]["message"])
        return not answer["is_stored_before"]
