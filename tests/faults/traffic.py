"""Messages that continue while things break: how they are published, and what came of them."""

import asyncio
import time
from collections import Counter
from itertools import count

from partq.core.layout import Layout
from partq.core.model import PartitionId
from partq.lab.verdict.journal import JournalReader, in_order
from partq.lab.verdict.journal_rows import MESSAGE_NUMBER_HEADER, PublishedRow
from partq.lab.verdict.judge import judge
from partq.lab.verdict.progress import RunProgress
from partq.testing import eventually

WAIT_S = 60.0
KEYS = 3
"""How many keys of each partition are published to."""
TURN_S = 0.02
"""How long after one message of each key the next follows."""

STAYS, MOVES = PartitionId(1, 0), PartitionId(1, 1)
"""The partition that stays at a, and the one that is handed over to b."""
LAYOUT = Layout.first(2)


class Traffic:
    """The messages of one test: published by this process, read in the members' journals."""

    def __init__(self, producer, directory):
        self.rows = []
        """What is known to be stored."""
        self.progress = RunProgress()
        self._producer = producer
        self._directory = directory
        self._journals = JournalReader(directory / "journals")
        self._stream = None
        self._numbers = Counter()
        self._answers = set()
        self._errors = []

    def keys(self, prefix):
        """Return keys that begin so, as many of each partition."""
        found = {STAYS: [], MOVES: []}
        numbers = count()
        while any(len(keys) < KEYS for keys in found.values()):
            key = f"{prefix}-{next(numbers)}"
            found[LAYOUT.partition_for(key)].append(key)
        return [key for keys in found.values() for key in keys[:KEYS]]

    async def once(self, prefix):
        """Publish one message of each key."""
        for key in self.keys(prefix):
            self._numbers[key] += 1
            number = self._numbers[key]
            answer = await self._producer.send(
                b"x", key=key, headers={MESSAGE_NUMBER_HEADER: str(number)}
            )
            self._answers.add(answer)
            answer.add_done_callback(lambda done, at=(key, number): self._answered(done, *at))

    def publish(self, prefix="key"):
        """Have messages published all the time."""
        self._stream = asyncio.create_task(self._publish(prefix))

    async def _publish(self, prefix):
        while True:
            await self.once(prefix)
            await asyncio.sleep(TURN_S)

    async def quiet(self):
        """Publish no more, and wait until everything is stored."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()
            await asyncio.gather(stream, return_exceptions=True)
        await self.stored()

    async def close(self):
        """End with the producer, whatever came of the messages."""
        if self._stream is not None:
            self._stream.cancel()
            await asyncio.gather(self._stream, return_exceptions=True)
        await self._producer.close()

    async def stored(self):
        """Wait until everything is stored."""
        while self._answers:
            await asyncio.wait(list(self._answers), timeout=WAIT_S)
        assert not self._errors, self._errors[:3]

    def _answered(self, answer, key, number):
        self._answers.discard(answer)
        if (error := answer.exception()) is not None:
            self._errors.append(error)
        else:
            at = answer.result()
            row = PublishedRow(time.monotonic_ns(), str(at.partition), at.offset, key, number)
            self.rows.append(row)

    # ---- what came of them ----

    def look(self):
        self.progress.add(self._journals.read_new())
        return self.progress

    def unprocessed(self, lost):
        """Return what is stored and was never processed; `lost`: keys begin so that may be."""
        done = {(row.key, row.number) for row in self.look().deliveries}
        return [
            row
            for row in self.rows
            if (row.key, row.number) not in done and not row.key.startswith(lost)
        ]

    async def all_processed(self, lost=()):
        async def is_all():
            return not self.unprocessed(lost)

        await eventually(is_all, "everything is processed")

    async def until_processed(self, member, cause=None, *, partition=MOVES):
        """Wait until a member processes another message of the partition, or one for a cause."""
        seen = 0 if cause is not None else len(self.look().deliveries)

        async def has():
            return any(
                (row.member, row.partition) == (member, str(partition))
                and cause in (None, row.cause)
                for row in self.look().deliveries[seen:]
            )

        await eventually(has, f"{member} processes {partition}, cause {cause}")

    async def verdict(self, *, causes=(), lost=()):
        """Publish a little more, wait until all is processed, and judge it.

        `causes`: for which messages may be repeated. A machine that stands still for longer than a
        lease loses flows, too; then the members have said so. `lost`: the beginning of keys whose
        messages the store has forgotten.
        """
        await self.once("last")
        await self.quiet()
        await self.all_processed(lost)
        missing = self.unprocessed(())
        stored = [row for row in self.rows if row not in missing]
        verdict = judge(stored, in_order(self.look().deliveries))
        assert verdict.is_good, verdict.findings
        allowed = {cause.name.lower() for cause in causes}
        if any("revoked (flow_lost)" in log.read_text() for log in self._directory.glob("*.log")):
            allowed.add("flow_lost")
        assert set(verdict.duplicates) <= allowed
        return verdict
