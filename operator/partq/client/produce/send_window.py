"""The batches of one partition that have no answer yet: their order, numbers and requests."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from partq.client.produce.batching import SealedBatch


class SendWindow:
    """Batches in the order of their numbers; those at its front are under way.

    Each answer is of the first one. After a refusal all are sent again from the first one, once the
    answers under way have come.
    """

    def __init__(self, first: int) -> None:
        self.next = first
        """The number of the next message."""
        self._batches: deque[SealedBatch] = deque()
        self._sent_count = 0
        self._by_request: dict[int, SealedBatch] = {}
        self._is_rewinding = False

    def __bool__(self) -> bool:
        return bool(self._batches)

    def __iter__(self) -> Iterator[SealedBatch]:
        return iter(self._batches)

    @property
    def head(self) -> SealedBatch | None:
        """The first batch without an answer."""
        return self._batches[0] if self._batches else None

    @property
    def position(self) -> int:
        """The number of the first message without an answer, or of the next one."""
        return self._batches[0].first if self._batches else self.next

    @property
    def is_head_in_doubt(self) -> bool:
        """Whether the first batch may be stored, by an earlier try."""
        head = self.head
        return head is not None and head.may_be_stored and not head.is_never_stored

    @property
    def sent_count(self) -> int:
        """How many batches are sent and not to be sent again."""
        return self._sent_count

    @property
    def is_rewinding(self) -> bool:
        """Whether answers to batches that are sent again are still under way."""
        return self._is_rewinding

    @property
    def awaits_answers(self) -> bool:
        """Whether a request is under way."""
        return bool(self._by_request)

    # ---- batches come ----

    def append(self, batch: SealedBatch) -> None:
        """Take a batch, and number its messages."""
        batch.first = self.next
        self.next = batch.end
        self._batches.append(batch)

    def put_first(self, batch: SealedBatch) -> None:
        """Take back a batch, with its numbers, before all others."""
        self._batches.appendleft(batch)

    # ---- batches are sent ----

    @property
    def unsent(self) -> SealedBatch | None:
        """The batch to be sent next."""
        has_one = self._sent_count < len(self._batches)
        return self._batches[self._sent_count] if has_one else None

    def send(self, batch: SealedBatch, request: int, now: float) -> None:
        """Note that the `unsent` batch is sent; `now` in seconds."""
        batch.note_sent(now)
        batch.request = request
        self._sent_count += 1
        self._by_request[request] = batch

    def answered(self, request: int) -> SealedBatch | None:
        """Return the batch that an answer is of; None: it was given up, so the answer is of none.

        The answer of a batch that is sent again says nothing more: see `is_rewinding`.
        """
        batch = self._by_request.pop(request, None)
        if batch is not None:
            batch.request = None
        return batch

    def rewind(self) -> None:
        """Send again from the first one, once the answers under way have come."""
        self._sent_count = 0
        self._is_rewinding = bool(self._by_request)

    def lose_requests(self) -> None:
        """Send again from the first one: the answers under way will not come."""
        for batch in self._by_request.values():
            batch.may_be_stored = True
            batch.request = None
        self.give_requests_up()

    def give_requests_up(self) -> None:
        """Send again from the first one; answers that come say nothing any more."""
        self._by_request.clear()
        self.rewind()

    # ---- batches leave ----

    def pop_head(self) -> SealedBatch:
        """Remove the first batch: it is stored."""
        self._sent_count = max(0, self._sent_count - 1)
        return self._batches.popleft()

    def remove(self, batch: SealedBatch) -> None:
        """Remove a batch that has failed; the numbers of others stay."""
        self._batches.remove(batch)

    def replace(self, batches: Iterable[SealedBatch]) -> list[SealedBatch]:
        """Return all batches, and have others in their place, of which none is sent."""
        before = list(self._batches)
        self._batches = deque(batches)
        self.rewind()
        return before

    def renumber(self, first: int, place: int = 0) -> None:
        """Number the batches from a place in the window on."""
        self.next = first
        for batch in islice(self._batches, place, None):
            batch.first = self.next
            self.next = batch.end
