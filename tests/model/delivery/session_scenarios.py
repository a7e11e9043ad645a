"""What happens in each search of a session, and the mistakes that searches have to find."""

from typing import Final, NamedTuple

from tests.model.delivery.session_state import SessionFaults
from tests.model.mutant import Mutant

SESSION_INVARIANTS: Final = {
    "L1": "Lock. By the clocks of the members at most one has the lock. Nobody begins a message "
    "while another member processes one and has not noticed that its lock has ended. A member "
    "whose flow lives begins only what it holds.",
    "L2": "Order. Nobody begins a message before all lower ones are processed.",
    "L3": "Acks. What is stored as acknowledged was processed by some member.",
    "L4": "Liveness. From every state there is a way, without another event, to a state where "
    "every message is stored as acknowledged.",
    "L5": "State. An application that begins a message reads the state that the last message "
    "before it has left, with each confirmed write.",
}


class SessionScenario(NamedTuple):
    """The messages of a session, and the events that may strike."""

    message_count: int = 1
    faults: SessionFaults = SessionFaults()
    has_old_replica: bool = False
    """The replica that may take over has stopped following before the first lock."""


SESSIONS_SMALL: Final = {
    "session": SessionScenario(2),
    "session-write": SessionScenario(1, SessionFaults(writes=1)),
    "session-renewal": SessionScenario(1, SessionFaults(renewals=1)),
    "session-close": SessionScenario(1, SessionFaults(closes=1)),
    "session-lost-flow": SessionScenario(1, SessionFaults(lost_flows=1)),
    "session-crash": SessionScenario(1, SessionFaults(crashes=1)),
    "session-lost-writes": SessionScenario(1, SessionFaults(rollbacks=1), has_old_replica=True),
}
"""Searched by each run of the tests, with and without mistakes."""

SESSIONS_LARGE: Final = {
    "session-renewal-of-two-messages": SessionScenario(2, SessionFaults(renewals=1)),
    "session-close-of-two-messages": SessionScenario(2, SessionFaults(closes=1)),
    "session-lost-flow-of-two-messages": SessionScenario(2, SessionFaults(lost_flows=1)),
    "session-crash-of-two-messages": SessionScenario(2, SessionFaults(crashes=1)),
    "session-renewal-and-crash": SessionScenario(1, SessionFaults(renewals=1, crashes=1)),
    "session-write-of-two-messages": SessionScenario(2, SessionFaults(writes=1)),
    "session-write-and-crash": SessionScenario(1, SessionFaults(writes=1, crashes=1)),
    "session-close-and-lost-flow": SessionScenario(1, SessionFaults(closes=1, lost_flows=1)),
    "session-lost-flow-and-crash": SessionScenario(1, SessionFaults(lost_flows=1, crashes=1)),
    "session-replica-at-any-time": SessionScenario(1, SessionFaults(rollbacks=1)),
}
"""Searched each night."""

SESSION_MUTANTS: Final = {
    "accept_reads_record": Mutant(
        "A member that accepts a session reads the stored state, which lacks unflushed acks.",
        "session", "L5"),
    "ack_of_any_flow": Mutant(
        "An ack counts by its lock, though the message was sent over an earlier connection.",
        "session-lost-flow", "L1"),
    "ack_without_lock": Mutant(
        "An ack counts under an earlier lock of the same member.", "session", "L1"),
    "close_acknowledges": Mutant(
        "What a member holds when it closes a session is acknowledged.", "session-close", "L3"),
    "close_while_processing": Mutant(
        "A member closes a session while its application processes a message of it.",
        "session-close", "L1"),
    "delivery_after_lock": Mutant(
        "A client keeps what it receives after its lock has ended.", "session", "L1"),
    "lock_counted_from_answer": Mutant(
        "A client counts its lock from the answer, and not from its request.", "session", "L1"),
    "lock_ends_by_close": Mutant(
        "A lock whose time is over stays, until its holder closes the session.",
        "session", "L4"),
    "lock_ends_with_flow": Mutant(
        "A lost connection ends the lock at once.", "session-lost-flow", "L1"),
    "lock_in_memory": Mutant(
        "The next broker does not know the lock.", "session-crash", "L1"),
    "lock_taken_up_again": Mutant(
        "A client whose lock has ended takes it up again when the answer to its renewal comes, and "
        "has dropped what it had.", "session-renewal", "L5"),
    "locks_after_lost_writes": Mutant(
        "A broker gives a lock at once after Redis has lost writes.",
        "session-lost-writes", "L1"),
    "messages_outlive_lock": Mutant(
        "A session is given, and what its last holder was sent is not taken back.",
        "session", "L2"),
    "renewal_not_stored": Mutant(
        "A renewal is answered before it is stored.", "session-renewal", "L1"),
    "state_kept": Mutant(
        "A member that comes back with its lock continues with the state that it had.",
        "session-crash", "L5"),
    "write_past_book": Mutant(
        "A write of the state is stored at once, and the next flush stores the book's state.",
        "session-write", "L5"),
}  # fmt: skip
