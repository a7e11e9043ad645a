"""The states of keys that applications read: what the message before has left (D8)."""

from collections.abc import Callable, Iterator

from partq.lab.simulate.oracle.facts import GroupPartitionFacts, Token, facts_name
from partq.lab.simulate.oracle.records import Records


class KeyStatesJudge:
    """Judges each state that is read, by the messages of the key before.

    An application leaves the number of each message that it finishes as the state of its key. A
    message is handed out when those before it in its key are done. So the state that it finds is
    the number of the one right before it, if that was finished with a state.

    Args:
        fail: called with each violation.
    """

    def __init__(self, fail: Callable[[str, str], None]) -> None:
        self.records: Records
        self._fail = fail
        self._left: dict[tuple[str, int], Token] = {}
        """Of messages whose state was left: the token up to which the group's life there was an
        earlier one; by the place of the group and the offset."""
        self._without: set[tuple[str, int]] = set()
        """Those that some application has finished without a state."""

    def left(
        self, facts: GroupPartitionFacts, offset: int, token: Token, *, has_state: bool
    ) -> None:
        """Take the news that an application is about to finish a message, under a token."""
        if not has_state:
            # Also of a later copy nobody knows whether it counts: this ack may have been first.
            self._without.add((facts.name, offset))
        elif token > facts.old_token and (facts.name, offset) not in self._without:
            self._left[facts.name, offset] = facts.old_token

    def read(
        self, facts: GroupPartitionFacts, offset: int, token: Token, state: int | None
    ) -> None:
        """Judge the state that an application has read at a message, under a token."""
        if self.records.was_rolled_back or token <= facts.old_token or not facts.is_there:
            return  # the store has forgotten something, or the group has ended, or begins again
        before = next(self._before(facts, offset), None)
        if before is None:
            return
        place, last = before
        # Else nobody has finished it since: it has expired, became a dead letter, or was skipped.
        was_left = (
            self._left.get((place.name, last)) == place.old_token
            and (place.name, last) not in self._without
        )
        was_moved = place is not facts and (place.reset_to or facts.reset_to)
        if not was_left or was_moved or last in place.letters:
            return
        self.records.effects["state read"] += 1
        if state == facts.log.ids[offset]:
            return  # a copy of it was taken back too late, and acknowledged: it counts for nothing
        if state != place.log.ids[last]:
            self._fail(
                "D8",
                f"{facts.name}: the state that is read at {offset} is {state}, and the message "
                f"before it in its key is {place.log.ids[last]}, at {last} of {place.name}",
            )

    def _before(
        self, facts: GroupPartitionFacts, offset: int
    ) -> Iterator[tuple[GroupPartitionFacts, int]]:
        """Iterate over the messages before one in its slot, the last ones first."""
        if offset >= len(facts.log.slots):
            return
        for log, offsets in self.records.rescales.messages_of(facts.log.slots[offset]):
            place = self.records.group_partitions[facts_name(log.name, facts.group)]
            for each in reversed(offsets):
                if place is not facts or each < offset:
                    yield place, each
