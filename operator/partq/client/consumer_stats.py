"""What a consumer has done so far, and how fast: counts, rates, the time that acks take."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from partq.core.model import Cause
from partq.core.samples.percentile import percentile

RATE_WINDOW_S = 60.0
"""Over how long the rates of a consumer are taken."""
SAMPLE_S = 1.0
"""How often the counts are noted for the rates, at most."""
MAX_ACK_TIMES = 1000
"""Of how many answers to acks, the last ones, the time is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStats:
    """A snapshot of one consumer; counts are of messages since it was made, over all its flows.

    `received` is the sum of `handed_out`, `returned`, `undecodable` and `buffered`.
    """

    received: int
    """Delivered by brokers; a message that is redelivered counts each time."""
    received_bytes: int
    """Of the batches that came with them, as they are stored."""
    handed_out: int
    """Taken by the application."""
    returned: int
    """Held ready and given back unread, as in a handoff, a pause of the application, a step
    back, a nack of the same key or a lost connection."""
    undecodable: int
    """Given back by the client, because it could not decode them."""
    buffered: int
    """Held ready now."""
    in_hand: int
    """Handed out, and neither acknowledged nor given back: of the partitions held now."""
    acked: int
    """In acks that a broker has confirmed, each message once per delivery."""
    nacked: int
    """Given back with a confirmed nack, those that could not be decoded included."""
    refused: int
    """In acks and nacks that were sent, and that a broker has refused or a lost connection has left
    without an answer."""
    redelivered: Mapping[Cause, int]
    """Of the received ones those that were no first delivery, by cause; without causes of none."""
    ack_p50_s: float | None
    """Half of the last 1,000 answers to acks took no longer than this, in seconds; None: none
    came. An ack is stored before its answer, and those of one turn of the event loop are one."""
    ack_p99_s: float | None
    """99 of 100 of them took no longer."""
    received_per_s: float
    """Over the last 60 s, or since the consumer was made, as the other rates."""
    received_bytes_per_s: float
    """Of `received_bytes`."""
    acked_per_s: float
    """Of `acked`, the confirmed ones."""
    nacked_per_s: float
    """Of `nacked`."""


class _Counts(NamedTuple):
    """What rates are taken of."""

    received: int
    received_bytes: int
    acked: int
    nacked: int


class Tally:
    """Counts for one consumer: a few additions per delivered batch and per ack frame.

    Args:
        clock: returns seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_at = clock()
        self._received = self._received_bytes = self._acked = self._nacked = 0
        self._returned = self._undecodable = self._refused = 0
        self._redelivered: dict[Cause, int] = {}
        self._ack_times: deque[float] = deque(maxlen=MAX_ACK_TIMES)
        self._samples: deque[tuple[float, _Counts]] = deque()
        """The counts at some instants of the last 60 s, each before what was counted then."""

    def now(self) -> float:
        """Return the time that `acked` compares with."""
        return self._clock()

    def received(self, messages: int, size_bytes: int, cause: Cause) -> None:
        """Count a delivery."""
        self._sample()
        self._received += messages
        self._received_bytes += size_bytes
        if cause is not Cause.NONE:
            self._redelivered[cause] = self._redelivered.get(cause, 0) + messages

    def returned(self, messages: int) -> None:
        """Count what went back unread."""
        self._returned += messages

    def undecodable(self, messages: int) -> None:
        """Count what the client could not decode."""
        self._undecodable += messages

    def acked(self, messages: int, sent_at: float) -> None:
        """Count a confirmed ack; `sent_at`: as of `now`."""
        self._ack_times.append(self._sample() - sent_at)
        self._acked += messages

    def nacked(self, messages: int) -> None:
        """Count a confirmed nack."""
        self._sample()
        self._nacked += messages

    def refused(self, messages: int) -> None:
        """Count an ack or nack that was refused, or has no answer."""
        self._refused += messages

    def snapshot(self, *, buffered: int, in_hand: int) -> ConsumerStats:
        """Return the counts and rates as of now."""
        now = self._clock()
        self._drop_old(now)
        counts = self._counts()
        before = self._samples[0][1] if self._samples else counts
        # Nothing was counted between the begin of the window and its first sample.
        lasted_s = min(RATE_WINDOW_S, now - self._began_at)
        rates = [
            (new - old) / lasted_s if lasted_s > 0 else 0.0
            for new, old in zip(counts, before, strict=True)
        ]
        return ConsumerStats(
            received=counts.received,
            received_bytes=counts.received_bytes,
            handed_out=counts.received - self._returned - self._undecodable - buffered,
            returned=self._returned,
            undecodable=self._undecodable,
            buffered=buffered,
            in_hand=in_hand,
            acked=counts.acked,
            nacked=counts.nacked,
            refused=self._refused,
            redelivered=dict(sorted(self._redelivered.items())),
            ack_p50_s=percentile(self._ack_times, 50),
            ack_p99_s=percentile(self._ack_times, 99),
            received_per_s=rates[0],
            received_bytes_per_s=rates[1],
            acked_per_s=rates[2],
            nacked_per_s=rates[3],
        )

    def _counts(self) -> _Counts:
        return _Counts(self._received, self._received_bytes, self._acked, self._nacked)

    def _sample(self) -> float:
        """Note the counts, about once a second while something is counted; return the time."""
        now = self._clock()
        if not self._samples or now - self._samples[-1][0] >= SAMPLE_S:
            self._drop_old(now)
            self._samples.append((now, self._counts()))
        return now

    def _drop_old(self, now: float) -> None:
        while self._samples and self._samples[0][0] < now - RATE_WINDOW_S:
            self._samples.popleft()
