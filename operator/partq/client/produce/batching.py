"""Messages of one partition on their way into batches: gathering, sealing, cutting."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from partq.client.arguments import check_texts, whole
from partq.client.produce.results import UNKNOWN_OFFSET, MessageResult
from partq.core.model import PartitionId
from partq.core.numbering.scheduled_ids import AT_ONCE, DueTime
from partq.errors import PartqError, SettingsError
from partq.excerpts import excerpt
from partq.wire import batch as wire
from partq.wire.batch import Codec

CODECS: dict[str, Codec | None] = {"auto": None} | {codec.name.lower(): codec for codec in Codec}
"""What `compression` may be; `auto` chooses for each batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """When a batch is full, and how it is compressed."""

    max_count: int
    max_bytes: int
    """Of the messages before compression; a larger message travels alone."""
    codec: Codec | None
    """None: chosen for each batch, by a sample of it."""


def checked_limits(max_count: int, max_bytes: int, compression: str) -> BatchLimits:
    """Return the limits of a producer's batches.

    Raises:
        SettingsError: one of them is of a wrong type or out of range; names it.
    """
    check_texts({"compression": compression}, needed=("compression",))
    if compression not in CODECS:
        raise SettingsError(
            f"compression: got {excerpt(compression)!r}, expected one of {', '.join(CODECS)}"
        )
    return BatchLimits(
        max_count=whole("max_batch_count", max_count, 1, wire.MAX_BATCH_COUNT),
        max_bytes=whole("max_batch_bytes", max_bytes, 1, wire.MAX_BATCH_BYTES),
        codec=CODECS[compression],
    )


@dataclass(frozen=True, slots=True)
class ReadyBatch:
    """A batch whose bytes the caller has made; it has no number yet."""

    data: bytes
    count: int
    size_bytes: int
    """Of its messages before compression."""
    ttl_ms: int = 0
    """The time to live of all its messages; 0: none."""
    needs: frozenset[str] = frozenset()
    """Features without which a broker must not get it."""
    order: Sequence[int] = ()
    """The place of each message among all of the producer; empty where nobody asks for it."""
    is_whole: bool = False
    """Its messages belong together: they are stored all, or none."""
    message_id: str = ""
    """The digest of its only message's id; empty: it has none."""
    due: DueTime = AT_ONCE
    """When all of it is to be stored in the log."""


class SealedBatch:
    """Bytes that are sent, and sent again, unchanged."""

    __slots__ = (
        "age_ms",
        "count",
        "data",
        "deadline",
        "due",
        "first",
        "first_sent_at",
        "is_never_stored",
        "is_whole",
        "may_be_stored",
        "message_id",
        "needs",
        "order",
        "request",
        "results",
        "size_bytes",
        "ttl_ms",
    )

    def __init__(
        self,
        data: bytes,
        results: list[tuple[MessageResult, int]],
        *,
        first: int,
        size_bytes: int,
        deadline: float,
        ttl_ms: int,
        order: Sequence[int] = (),
        needs: frozenset[str] = frozenset(),
        is_whole: bool = False,
        message_id: str = "",
        due: DueTime = AT_ONCE,
    ) -> None:
        self.data = data
        self.results = results
        """The callers that wait for the messages, each with how many, in order."""
        self.first = first
        """Number of the first message."""
        self.count = sum(count for _, count in results)
        self.size_bytes = size_bytes
        self.deadline = deadline
        self.ttl_ms = ttl_ms
        """The time to live of all its messages; 0: none."""
        self.order = order
        """The place of each message among all of the producer; empty where nobody asks for it."""
        self.needs = needs
        """Features without which a broker must not get it."""
        self.is_whole = is_whole
        """Its messages belong together: they are stored all, or none."""
        self.message_id = message_id
        """The digest of its only message's id; empty: it has none."""
        self.due = due
        """When all of it is to be stored in the log."""
        self.request: int | None = None
        """The request that waits for an answer; None: not sent, or to be sent again."""
        self.may_be_stored = False
        """It was sent and its answer was lost. Never taken back: a copy may still be on its way."""
        self.is_never_stored = False
        """No copy of it is stored, or will be: the partition has lost slots that it has."""
        self.first_sent_at: float | None = None
        """When it was first sent to anybody, in seconds; None: never."""
        self.age_ms = 0
        """How long before it was sent last it was first sent; 0: it was sent once at most."""

    @property
    def end(self) -> int:
        """The number behind the last message."""
        return self.first + self.count

    @property
    def was_sent(self) -> bool:
        """Whether it was sent to anybody, under the present producer id."""
        return self.first_sent_at is not None

    def note_sent(self, now: float) -> None:
        """Note that it is sent; `now` in seconds."""
        if self.first_sent_at is None:
            self.first_sent_at = now
        else:
            self.age_ms = max(1, round((now - self.first_sent_at) * 1000))

    def forget_sent(self) -> None:
        """Be as new: under another producer id it was never sent."""
        self.request, self.may_be_stored, self.is_never_stored = None, False, False
        self.first_sent_at, self.age_ms = None, 0

    def resolve_stored(self, partition: PartitionId, offset: int) -> None:
        """Tell the results where their messages are; `offset` -1: no longer known."""
        for result, count in self.results:
            result.stored(partition, offset, count)
            if offset > UNKNOWN_OFFSET:
                offset += count

    def resolve_failed(self, partition: PartitionId, error: PartqError) -> None:
        """Tell the results that their messages have failed."""
        for result, count in self.results:
            result.failed(partition, error, count)

    def cut(self, known: int) -> tuple["SealedBatch", "SealedBatch"]:
        """Split off the first `known` messages; both parts are encoded again."""
        header = wire.read_header(self.data)
        slots = wire.read_slots(self.data, header)
        encoded = wire.encode_messages(wire.decode(self.data))
        head, tail = _split_results(self.results, known)
        parts = []
        for results, start, stop in ((head, 0, known), (tail, known, self.count)):
            part = SealedBatch(
                wire.encode(encoded[start:stop], slots[start:stop], header.codec),
                results,
                first=self.first + start,
                size_bytes=sum(map(len, encoded[start:stop])),
                deadline=self.deadline,
                ttl_ms=self.ttl_ms,
                order=self.order[start:stop],
                needs=self.needs,
                due=self.due,
            )
            part.may_be_stored = self.may_be_stored
            part.first_sent_at = self.first_sent_at
            parts.append(part)
        return parts[0], parts[1]


def cuts(encoded: Sequence[bytes], limits: BatchLimits) -> Iterator[slice]:
    """Return which messages make a batch each, in their order, as far as limits go."""
    start = size = 0
    for at, each in enumerate(encoded):
        if at > start and (at - start >= limits.max_count or size + len(each) > limits.max_bytes):
            yield slice(start, at)
            start, size = at, 0
        size += len(each)
    yield slice(start, len(encoded))


class OpenBatch:
    """Messages that have no number yet."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._clear()

    def _clear(self) -> None:
        self._encoded: list[bytes] = []
        self._slots: list[int] = []
        self._results: list[tuple[MessageResult, int]] = []
        self._order: list[int] = []
        self.size_bytes = 0
        self.deadline = 0.0
        self.ttl_ms = 0

    def __len__(self) -> int:
        return len(self._encoded)

    @property
    def is_full(self) -> bool:
        """Whether another message would have to go into the next batch."""
        return (
            len(self._encoded) >= self._limits.max_count
            or self.size_bytes >= self._limits.max_bytes
        )

    def fill(
        self,
        encoded: Sequence[bytes],
        slots: Sequence[int],
        result: MessageResult,
        deadline: float,
        ttl_ms: int,
        order: Sequence[int] = (),
    ) -> int:
        """Take as many of the messages as fit, at least one when empty; return how many.

        None when those before have another time to live.
        """
        if self._encoded and ttl_ms != self.ttl_ms:
            return 0
        taken = self._fitting(encoded)
        if not taken:
            return 0
        if not self._encoded:
            self.deadline = deadline
            self.ttl_ms = ttl_ms
        whole = taken == len(encoded)
        self._encoded.extend(encoded if whole else encoded[:taken])
        self._slots.extend(slots if whole else slots[:taken])
        self._order.extend(order if whole else order[:taken])
        self.size_bytes += sum(map(len, encoded if whole else encoded[:taken]))
        self._results.append((result, taken))
        return taken

    def _fitting(self, encoded: Sequence[bytes]) -> int:
        room_count = self._limits.max_count - len(self._encoded)
        room_bytes = self._limits.max_bytes - self.size_bytes
        if len(encoded) <= room_count and sum(map(len, encoded)) <= room_bytes:
            return len(encoded)
        fitting = bisect_right(list(accumulate(map(len, encoded[:room_count]))), room_bytes)
        return fitting if fitting or self._encoded else min(1, len(encoded))

    def seal(self, first: int) -> SealedBatch:
        """Return the messages as one batch, numbered from `first`; the batch is empty then."""
        sealed = SealedBatch(
            wire.encode(self._encoded, self._slots, self._limits.codec),
            self._results,
            first=first,
            size_bytes=self.size_bytes,
            deadline=self.deadline,
            ttl_ms=self.ttl_ms,
            order=self._order,
        )
        self._clear()
        return sealed


def _split_results(
    results: list[tuple[MessageResult, int]], known: int
) -> tuple[list[tuple[MessageResult, int]], list[tuple[MessageResult, int]]]:
    head: list[tuple[MessageResult, int]] = []
    tail: list[tuple[MessageResult, int]] = []
    for result, count in results:
        in_head = max(0, min(count, known))
        if in_head:
            head.append((result, in_head))
        if count - in_head:
            tail.append((result, count - in_head))
        known -= in_head
    return head, tail
