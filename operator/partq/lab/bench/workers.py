"""The processes that write and read: how the bench orders them about, and what they answer.

A worker is a separate process with one pipe to the bench. A writer carries out one
`WriteOrder` after another and answers each with `WriteResult`. A reader reads from `ReadOrder` on,
sends its `ReaderProgress` from time to time, and answers `RestOrder` with `RestResult`. When the
bench dies, the pipe's end tells them.
"""

import multiprocessing
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from time import monotonic, monotonic_ns
from typing import Any, Self, TypeVar

from partq.errors import InternalError
from partq.lab.bench.workload import Keyed, ReaderTally, due_ns_of

PROGRESS_EVERY_S = 0.02
ANSWER_S = 60.0
"""How long a worker may be silent before an answer."""
_STOP_S = 10.0

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class WriteOrder:
    """Order to a writer: publish, and answer when all of it is confirmed."""

    messages: int
    per_s: int = 0
    """Single messages per second; 0: as fast as it goes, in batches."""
    batch_messages: int = 0
    """Messages per batch where the writer does not decide that itself."""


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Answer to `WriteOrder`. Instants are of the system's monotonic clock, in seconds."""

    began_at: float
    confirmed_at: float


@dataclass(frozen=True, slots=True)
class ReadOrder:
    """Order to a reader: read until told to rest."""


@dataclass(frozen=True, slots=True)
class RestOrder:
    """Order to a reader: stop reading and tell what came."""


@dataclass(frozen=True, slots=True)
class RestResult:
    """Answer to `RestOrder`."""

    seen: ReaderTally
    """Since the reader's process began."""
    latencies_ms: list[float]
    """From the instant a message was due until its reader had it; of those that carry one, since
    the last `RestOrder`."""
    received_bytes: int = 0
    """Of the batches that brokers have sent, since the reader's process began."""


@dataclass(frozen=True, slots=True)
class ReaderProgress:
    """How far a reader is since its process began."""

    messages: int = 0
    unconfirmed: int = 0
    """Batches whose acks are not confirmed yet."""
    at: float = 0.0
    """When it was done with the last message."""
    held: tuple[int, ...] = ()
    """How many partitions each of its consumers holds; of the type KeyShared, how many slots."""


@dataclass(slots=True)
class ReaderLog:
    """A reader's own side of `ReaderProgress` and `RestResult`."""

    connection: Connection
    seen: ReaderTally
    unconfirmed: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    _last: ReaderProgress = field(default_factory=ReaderProgress)
    _sent_at: float = 0.0
    _done_at: float = 0.0

    def took(self, messages: Sequence[Keyed]) -> None:
        """Note the latencies of a batch that has just come, if its messages carry instants."""
        if due_ns_of(messages[0].value):
            now_ns = monotonic_ns()
            self.latencies_ms += [(now_ns - due_ns_of(each.value)) / 1e6 for each in messages]

    def done(self) -> None:
        """Note that everything seen so far is done with, just now."""
        self._done_at = monotonic()

    def report(self, held: tuple[int, ...] = ()) -> None:
        """Send the progress if it has changed and was not sent a moment ago."""
        now = monotonic()
        progress = ReaderProgress(self.seen.messages, self.unconfirmed, self._done_at, held)
        if progress != self._last and now - self._sent_at >= PROGRESS_EVERY_S:
            self.connection.send(progress)
            self._last, self._sent_at = progress, now

    def rested(self, received_bytes: int = 0) -> None:
        """Send what came, and begin again."""
        self.connection.send(RestResult(self.seen, self.latencies_ms, received_bytes))
        self.latencies_ms = []


def next_order(connection: Connection) -> WriteOrder | ReadOrder | RestOrder | None:
    """Wait for a worker's next order; None: end, or the bench is gone."""
    try:
        order: WriteOrder | ReadOrder | RestOrder | None = connection.recv()
    except (EOFError, ConnectionError):
        return None
    return order


class Worker:
    """The bench's handle of one writer or reader."""

    def __init__(self, name: str, main: Callable[..., None], *args: Any) -> None:
        """Start the process `main(*args, connection)`. `name` is for messages to people."""
        spawning = multiprocessing.get_context("spawn")
        self.connection, theirs = spawning.Pipe()
        self.progress = ReaderProgress()
        self._answers: deque[object] = deque()
        self._name = name
        self._process = spawning.Process(target=main, args=(*args, theirs), daemon=True)
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process.pid is not None  # noqa: S101  # it was started
        return self._process.pid

    def order(self, order: WriteOrder | ReadOrder | RestOrder) -> None:
        """Give an order; the answer comes by `answer`."""
        self.connection.send(order)

    @property
    def has_answered(self) -> bool:
        """Whether an answer waits to be fetched."""
        return bool(self._answers)

    def receive(self) -> None:
        """Take what comes next from the process: progress, or an answer.

        Raises:
            InternalError: the process has ended; its traceback is on standard error.
        """
        try:
            message: object = self.connection.recv()
        except (EOFError, ConnectionError) as error:
            raise InternalError(f"bench: the {self._name} has ended; see its traceback") from error
        if isinstance(message, ReaderProgress):
            self.progress = message
        else:
            self._answers.append(message)

    def answer(self, kind: type[_Answer]) -> _Answer:
        """Return the answer to the oldest order, which is of this kind.

        Raises:
            InternalError: none comes, or another; or the process has ended.
        """
        if not follow([self], lambda: self.has_answered, ANSWER_S):
            raise InternalError(f"bench: no answer from the {self._name} in {ANSWER_S:g} s")
        answer = self._answers.popleft()
        if not isinstance(answer, kind):
            raise InternalError(f"bench: the {self._name} answers {answer}")
        return answer

    def close(self) -> None:
        """End the process."""
        with suppress(ConnectionError):
            self.connection.send(None)
        self._process.join(_STOP_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def follow(workers: Sequence[Worker], is_enough: Callable[[], bool], stall_s: float) -> bool:
    """Take what comes from the workers until it is enough; False: nothing came for `stall_s`."""
    of_connection = {worker.connection: worker for worker in workers}
    while not is_enough():
        if not (connections := wait(of_connection, stall_s)):
            return False
        for worker in workers:
            if worker.connection in connections:
                worker.receive()
    return True
