"""What a producer has done so far: counts, and the time that answers take."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from partq.client.consumer_stats import MAX_ACK_TIMES
from partq.core.samples.percentile import percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerStats:
    """A snapshot of one producer; counts are of messages since it was made.

    `sent` is the sum of `stored`, `failed` and `in_flight`.
    """

    sent: int
    """Taken by a call that sends; what such a call refuses does not count."""
    stored: int
    """Confirmed by a broker, each once."""
    failed: int
    """Not stored, or with an unknown outcome."""
    resent: int
    """Sent to a broker again, each time: after a lost connection, a refusal, a moved partition."""
    in_flight: int
    """Without an answer now, those included that wait for their batch."""
    in_flight_bytes: int
    """Of these, before compression."""
    ack_p50_s: float | None
    """Half of the last 1,000 answers to batches took no longer than this, in seconds from the first
    sending; None: none came."""
    ack_p99_s: float | None
    """99 of 100 of them took no longer."""


class ProducerTally:
    """Counts for one producer: a few additions per batch.

    Args:
        clock: returns seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._stored = self._failed = self._resent = 0
        self._ack_times: deque[float] = deque(maxlen=MAX_ACK_TIMES)

    def stored(self, count: int, first_sent_at: float | None) -> None:
        """Count the messages of a batch that is stored."""
        self._stored += count
        if first_sent_at is not None:
            self._ack_times.append(max(0.0, self._clock() - first_sent_at))

    def failed(self, count: int) -> None:
        """Count messages that have failed."""
        self._failed += count

    def resent(self, count: int) -> None:
        """Count the messages of a batch that is sent again."""
        self._resent += count

    def snapshot(self, *, in_flight: int, in_flight_bytes: int) -> ProducerStats:
        """Return the counts as of now."""
        return ProducerStats(
            sent=self._stored + self._failed + in_flight,
            stored=self._stored,
            failed=self._failed,
            resent=self._resent,
            in_flight=in_flight,
            in_flight_bytes=in_flight_bytes,
            ack_p50_s=percentile(self._ack_times, 50),
            ack_p99_s=percentile(self._ack_times, 99),
        )
