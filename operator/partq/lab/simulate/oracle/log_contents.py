"""What deliveries hold: batches as they are in the log, and counts that are stored (G1)."""

from collections.abc import Callable, Sequence

from partq.lab.simulate.oracle.facts import GroupPartitionFacts, Token
from partq.lab.simulate.oracle.records import Records
from partq.wire import frames

SeenBatches = set[tuple[str, Token, int]]
"""What came with its bytes over a connection, by the first offset."""


class LogContents:
    """Compares what is sent to members with what is stored."""

    def __init__(self, fail: Callable[[str, str], None]) -> None:
        self.records: Records
        self.is_audited = False
        """A delivery waits for its audit record before it is sent; what is taken back meanwhile
        is sent all the same, and the news of that follows it."""
        self._fail = fail

    def judge(
        self,
        seen: SeenBatches,
        facts: GroupPartitionFacts,
        frame: frames.Deliver,
        payload: bytes,
        offsets: Sequence[int],
        epoch: int,
    ) -> None:
        """Judge a delivery.

        Args:
            seen: of the connection.
            facts: of the place that it is of.
            frame: the delivery.
            payload: its bytes.
            offsets: those of its messages.
            epoch: under which counts are stored before their messages are sent.
        """
        name, log = facts.name, facts.log
        token = frame.broker_epoch, frame.epoch
        stored = log.batches.get(frame.first_offset)
        batch = (name, token, frame.first_offset)
        if payload:
            seen.add(batch)
        elif stored is not None and len(stored.data) == frame.kept_bytes and batch in seen:
            payload = stored.data  # it came with its bytes before
        if stored is None or stored.data != payload:
            what = f"what is sent as {frame.first_offset} is not in the log there"
            self._fail("G1", f"{name}: {what}")
        elif stored.broker_epoch != frame.append_broker_epoch:
            self._fail("G1", f"{name}: {frame.first_offset} was stored under another broker epoch")
        elif not stored.first <= frame.start < frame.stop <= stored.first + len(stored.ids):
            self._fail("G1", f"{name}: {frame.start} to {frame.stop} is not in that batch")
        if facts.is_there and token == (log.broker_epoch, epoch):
            stored_counts = self.records.counts(facts) if frame.redeliveries else {}
            for offset, count in frame.redeliveries:
                # What waits for its audit record may be done by now: its count has gone with that.
                if count > stored_counts.get(offset, 0) and not facts.is_stored_done(offset):
                    self._fail("counts", f"{name}: {offset} is sent again before that is stored")
            waiting = set() if self.is_audited else {*facts.outbox.values()}
            for offset in waiting.intersection(offsets):
                self._fail("letters", f"{name}: {offset} is sent to a member, and waits to be sent")
