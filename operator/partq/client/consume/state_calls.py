"""States of keys: read over a flow, and left with acks."""

import asyncio
from collections.abc import Callable

from partq.client.consume.assignment.assigned_partition import AssignedPartition
from partq.client.consume.flow_acks import AckBook, fenced, quiet_future
from partq.errors import PartqError, UnavailableError, from_code
from partq.wire.frames import UNBOUND, Bound, Frame, ReadState, State, StateRefused


class StateCalls:
    """Asks one flow's broker for states, behind the acks so far, and sends acks that have one."""

    def __init__(self, url: str, send: Callable[[Frame], bool], acks: AckBook) -> None:
        self._url = url
        self._send = send
        self._acks = acks
        self.bound: Bound = UNBOUND
        """What the broker has said of itself."""
        self._open: dict[int, asyncio.Future[bytes | None]] = {}
        self._next_request = 1

    def read(self, assigned: AssignedPartition, key: str) -> asyncio.Future[bytes | None]:
        """Return a future of the state of a key, as the acks so far have left it.

        Raises:
            UnavailableError: the broker is of an earlier version.
        """
        self._check(assigned)
        future: asyncio.Future[bytes | None] = quiet_future()
        self._acks.send_all()
        request = self._next_request
        self._next_request += 1
        frame = ReadState(request, *assigned.partition, *assigned.token, key)
        if not assigned.is_ended and self._send(frame):
            self._open[request] = future
        else:
            future.set_exception(fenced(assigned))
        return future

    def ack(
        self, assigned: AssignedPartition, delivery: int, offset: int, key: str, state: bytes | None
    ) -> asyncio.Future[None]:
        """Acknowledge a message, with the state that its key has from then on.

        Raises:
            UnavailableError: the broker is of an earlier version; nothing has happened.
        """
        self._check(assigned)
        return self._acks.add_with_state(assigned, delivery, offset, key, state)

    def answered(self, frame: State | StateRefused) -> None:
        """Take the answer to a read."""
        future = self._open.pop(frame.request, None)
        if future is None or future.done():
            return
        if isinstance(frame, State):
            future.set_result(frame.state)
        else:
            future.set_exception(from_code(frame.code, frame.message))

    def lose_all(self, error: PartqError) -> None:
        """Fail what has no answer, as the connection is lost."""
        lost, self._open = self._open, {}
        for future in lost.values():
            if not future.done():
                future.set_exception(error)

    def _check(self, assigned: AssignedPartition) -> None:
        if not self.bound.takes_states and not assigned.is_ended:
            raise UnavailableError(
                f"{self._url}: the broker is of an earlier version, and keeps no states of keys; "
                "nothing has happened: update the brokers"
            )
