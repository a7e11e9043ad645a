"""What happens in each search of deliveries, and the mistakes that searches have to find."""

from typing import Final, NamedTuple

from tests.model.delivery.partition_state import Faults
from tests.model.mutant import Mutant

INVARIANTS: Final = {
    "D1": "Exclusive. A member whose flow lives begins only what it holds, unless that was taken "
    "by force. It does not begin a message while another member processes one of the same lane "
    "and holds it.",
    "D2": "Order. Nobody begins a message before all lower ones of its lane are processed, or "
    "after a higher one is acknowledged. After a broker change this holds again for all messages "
    "whose acks are not stored.",
    "D3": "Acks. What is stored as acknowledged was processed by some member.",
    "D4": "Liveness. From every state there is a way, without another event, to a state where "
    "every message is stored as acknowledged.",
    "D5": "Counts. A message is not redelivered before its redelivery count is stored.",
    "D6": "Delays. A lane whose retry is stored is not delivered before its delay is over.",
    "D7": "Tokens. The tokens of a lane never go down.",
    "D8": "State. An application that begins a message reads the state that the last message "
    "before it has left.",
    "D9": "Barrier. A message is sent from a successor only after the lower ones of its lane in "
    "all predecessors are stored as acknowledged, and none of these is sent after it.",
}


class Scenario(NamedTuple):
    """Logs, and the events that may strike while they are consumed."""

    logs: tuple[str, ...]
    """The lane of each message, per partition: `010` are three messages of two lanes.

    `01.1` is a partition that lane 0 left behind the second message. The next partition has it.
    """
    faults: Faults
    has_tokens: bool = False
    """Whether tokens and pointers are part of the states."""
    has_states: bool = False
    """Whether acks carry the state of their key."""


ANY: Final = Faults(moves=2, nacks=1, lost_flows=1, crashes=1, forced=1)
"""Each kind of event that the protocol was first made for."""

SMALL: Final = {
    "two-events": Scenario(("00",), ANY._replace(at_most=2)),
    "three-messages": Scenario(("000",), Faults(moves=2, nacks=1, at_most=3)),
    "tokens": Scenario(("00",), ANY._replace(at_most=2), has_tokens=True),
    "two-lanes": Scenario(("010",), ANY._replace(moves=1, forced=0, at_most=1)),
    "ack-timeout": Scenario(("00",), Faults(timeouts=1, nacks=1, moves=1, at_most=2)),
    "ack-timeout-before-force": Scenario(("00",), Faults(timeouts=1, moves=1, forced=1, at_most=3)),
    "states": Scenario(
        ("00",), Faults(moves=1, nacks=1, lost_flows=1, crashes=1, at_most=2), has_states=True
    ),
    "lost-writes": Scenario(
        ("00",), Faults(rollbacks=1, moves=1, nacks=1, crashes=1, at_most=2), has_tokens=True
    ),
    "seal": Scenario(("0", "0"), ANY._replace(timeouts=1, at_most=1)),
    "seal-beside-a-lane": Scenario(("01.1", "0"), Faults(moves=1, nacks=1, at_most=1)),
    "two-seals": Scenario(("0", "", "0"), Faults(nacks=1, crashes=1, at_most=1)),
    "seal-with-states": Scenario(
        ("0", "0"), Faults(moves=1, crashes=1, rollbacks=1, at_most=1), has_states=True
    ),
}
"""Searched by each run of the tests, with and without mistakes."""

LARGE: Final = {
    "two-events-of-three-messages": Scenario(("000",), ANY._replace(moves=1, at_most=2)),
    "three-events": Scenario(("00",), ANY._replace(at_most=3)),
    "four-events": Scenario(("00",), ANY._replace(nacks=2, forced=0, at_most=4)),
    "two-lanes-and-two-events": Scenario(("010",), ANY._replace(timeouts=1, at_most=2)),
    "two-ack-timeouts": Scenario(("00",), Faults(timeouts=2, nacks=1, moves=2, at_most=3)),
    "ack-timeout-and-any": Scenario(("00",), ANY._replace(timeouts=1, at_most=3)),
    "states-and-any": Scenario(("00",), ANY._replace(timeouts=1, at_most=3), has_states=True),
    "lost-writes-and-any": Scenario(
        ("00",), ANY._replace(rollbacks=1, timeouts=1, at_most=2), has_tokens=True, has_states=True
    ),
    "lost-writes-and-two-events": Scenario(
        ("00",), Faults(rollbacks=1, moves=1, nacks=1, crashes=1, at_most=3)
    ),
    "seal-and-two-events": Scenario(("00", "0"), ANY._replace(timeouts=1, at_most=2)),
    "seal-beside-a-lane-and-any": Scenario(("01.1", "0"), ANY._replace(timeouts=1, at_most=1)),
    "two-seals-and-two-events": Scenario(("0", "0", "0"), ANY._replace(timeouts=1, at_most=2)),
    "seal-beside-a-lane-with-states": Scenario(
        ("01.1", "0"), ANY._replace(timeouts=1, at_most=1), has_states=True
    ),
    "two-seals-with-states": Scenario(
        ("0", "", "0"), Faults(crashes=1, rollbacks=1, at_most=1), has_states=True
    ),
    "seal-and-lost-writes": Scenario(
        ("0", "0"), ANY._replace(rollbacks=1, at_most=2), has_states=True
    ),
}
"""Searched each night: minutes."""

MUTANTS: Final = {
    "ack_of_any_copy": Mutant(
        "The ack of a copy that was taken back counts, as the same member holds a later one.",
        "ack-timeout", "D1"),
    "ack_without_holder": Mutant(
        "An ack counts, although another member holds the message, or nobody.",
        "two-events", "D1"),
    "answer_not_awaited": Mutant(
        "A lane is sent to a member that has not said yet what it gives back of it.",
        "two-events", "D2"),
    "count_not_stored": Mutant(
        "A message is sent before its redelivery count is stored.", "two-events", "D5"),
    "cumulative_ack": Mutant(
        "An ack counts for all lower messages, too.", "two-lanes", "D3"),
    "delay_in_memory": Mutant(
        "Lanes that wait for the delay of a retry are not stored.", "two-events", "D6"),
    "drain_outlives_flow": Mutant(
        "A lane waits for a former owner whose flow is lost.", "two-events", "D4"),
    "epoch_without_clock": Mutant(
        "A broker epoch is one more than the stored one, also if Redis has lost some.",
        "lost-writes", "D7"),
    "gate_by_cursor_alone": Mutant(
        "A gate opens by the acks of the predecessor, whose gate may be closed.",
        "two-seals", "D9"),
    "gate_by_memory": Mutant(
        "A gate opens by acks that the predecessor's broker has not stored.", "seal", "D9"),
    "gate_by_sent": Mutant(
        "A gate opens when the predecessor's messages are sent.", "seal", "D9"),
    "gate_passes_parked": Mutant(
        "A gate opens although a lane of the predecessor is parked.", "seal", "D9"),
    "loan_beside_lower": Mutant(
        "After an ack timeout an ack counts although a lower message of the lane was taken back.",
        "ack-timeout-before-force", "D2"),
    "memory_outlives_store": Mutant(
        "A broker keeps its book when Redis has lost writes.", "lost-writes", "D7"),
    "no_drain": Mutant(
        "A lane moves while its former owner holds messages of it.", "two-events", "D2"),
    "pointer_not_moved_back": Mutant(
        "A pointer stays where it is when something below it is open again.", "tokens", "D4"),
    "rest_kept_after_nack": Mutant(
        "A nack takes its message back, and the member keeps the later ones of the lane.",
        "two-events", "D2"),
    "rest_kept_after_timeout": Mutant(
        "After an ack timeout the member keeps the later messages of the lane.",
        "ack-timeout", "D2"),
    "returned_and_kept": Mutant(
        "A member gives messages back, and processes them all the same.", "two-events", "D1"),
    "round_of_bind": Mutant(
        "The token of a delivery has the round of the member's bind.", "tokens", "D7"),
    "state_before_ack": Mutant(
        "The state of a key is stored at once, and the ack with the next flush.",
        "states", "D8"),
    "state_left_behind": Mutant(
        "A successor begins without the states of the keys that moved.",
        "seal-with-states", "D8"),
    "state_not_fenced": Mutant(
        "The state of a key is stored, although its ack is refused.", "states", "D8"),
    "state_read_past_acks": Mutant(
        "A read of a key's state overtakes acks that the member has sent.", "states", "D8"),
}  # fmt: skip
