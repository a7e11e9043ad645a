"""What a broker answers to pulls: the same rules as for what it sends over connections."""

from collections.abc import Callable

from partq.core.model import Cause
from partq.lab.simulate.machine.network import Plain
from partq.lab.simulate.oracle.facts import (
    TAKEN_BACK,
    GroupPartitionFacts,
    Token,
    facts_name,
)
from partq.lab.simulate.oracle.keys.keyed_deliveries import KeyedDeliveries
from partq.lab.simulate.oracle.records import Records

Flow = tuple[object, int]
"""A life of a broker, and the number of a flow there."""


class Answers:
    """Judges each answer as it leaves a broker; a repeated one must be the same, and counts once.

    An answer may be older than it looks: what is in it was taken before the lease was renewed for
    it. So nothing is said of a token that has ended meanwhile.
    """

    def __init__(self, fail: Callable[[str, str], None], keyed: KeyedDeliveries) -> None:
        self._keyed = keyed
        self.is_free = False
        """Messages given back, or not acknowledged in time, are redelivered alone, out of turn."""
        self._fail = fail
        self._last: dict[Flow, tuple[int, list[Plain]]] = {}
        """The last answer of each flow: its number and its messages."""
        self._flows: dict[tuple[str, Token], Flow] = {}
        self._positions: dict[tuple[str, Token], tuple[int, int]] = {}
        """(delivery number, next offset) of each token."""

    def judge(self, records: Records, group: str, flow: Flow, answer: Plain) -> None:
        """Take an answer."""
        number, messages = answer["answer"], answer["messages"]
        known = self._last.get(flow)
        if known is not None and known[0] == number:
            if known[1] != messages:
                self._fail("G2", f"answer {number} of flow {flow[1]} is repeated as another one")
            return
        self._last[flow] = number, messages
        for message in messages:
            facts = records.group_partitions[facts_name(message["partition"], group)]
            name = facts.name
            token = message["broker_epoch"], message["epoch"]
            if self._flows.setdefault((name, token), flow) != flow:
                self._fail("S1", f"{name}: token {token} was given to two flows")
            # What was taken before the store forgot may be answered after that.
            is_past = records.was_rolled_back and token[0] != facts.log.broker_epoch
            is_past |= token[1] <= facts.old_epoch
            if not facts.log.is_torn and not is_past:
                self._judge(records, facts, token, message)

    def _judge(
        self, records: Records, facts: GroupPartitionFacts, token: Token, message: Plain
    ) -> None:
        name, offset, number = facts.name, message["offset"], message["delivery"]
        # A token begins with what was not acknowledged then; since that nothing of it was.
        if self._keyed.is_on:
            cause = Cause[message["cause"].upper() or "NONE"]
            self._keyed.sent(facts, token, [offset], [cause], is_pulled=True)
            self._sent(records, facts, offset, message)
            return
        first = number, min(facts.cursor, offset)
        known, position = self._positions.get((name, token), first)
        is_alone = self.is_free and Cause[message["cause"].upper() or "NONE"] in TAKEN_BACK
        # Out of its turn: the others continue where they were.
        end = max(position, offset + 1) if is_alone and number == known else offset + 1
        self._positions[name, token] = number, end
        if number < known or (number == known and offset < position and not is_alone):
            self._fail("S3", f"{name}: answers {offset} again without a cause")
        for skipped in range(position, offset):
            is_waiting = self.is_free and facts.sent[skipped]
            if not (is_waiting or records.needs_no_more(facts, skipped)):
                self._fail("S3", f"{name}: offset {skipped} is skipped, and nobody has done it")
        self._sent(records, facts, offset, message)

    def _sent(
        self, records: Records, facts: GroupPartitionFacts, offset: int, message: Plain
    ) -> None:
        facts.sent[offset] += 1
        records.rescales.sent(facts, [offset])
        ids = facts.log.ids
        if offset >= len(ids) or ids[offset] != int(message["value"]):
            self._fail("G1", f"{facts.name}: what is answered as {offset} is not in the log there")
