"""What happens in each search, and the mistakes that searches have to find."""

from typing import Final, NamedTuple

from tests.model.mutant import Mutant

INVARIANTS: Final = {
    "R1": "Once. No numbered message is stored twice, whatever layouts its producer knows.",
    "R2": "Accept. After a successor has stored a message of a slot, no predecessor stores one.",
    "R3": "Source. Messages of one producer and one slot are stored in the order of publishing.",
    "R4": "Barrier. A group is sent a message of a slot from a successor only after it has "
    "acknowledged all messages of the slot in every predecessor.",
    "R5": "Loss. A partition is removed after every group has acknowledged all of it. A confirmed "
    "message is stored.",
    "R6": "Liveness. From every state there is a way, without another fault, to a state where "
    "every message is stored, confirmed and acknowledged.",
    "R8": "Abort. Before its commit a change has neither sealed a partition, nor stored or "
    "delivered a message.",
}


# R7, least movement, is a property of the table of slots: tests/core/test_slot_table.py.


class Scenario(NamedTuple):
    """The processes of a search, and how many faults strike them."""

    publishes: str = ""
    """What the pipelining producer publishes, in order: `m` for the moving slot, `s` the other."""
    singles: int = 0
    changes: int = 1
    groups: int = 0
    late_group: bool = False
    """The last group is made while changes are under way."""
    removes: bool = False
    """Whether partitions that all groups have passed are removed."""
    resets: int = 0
    lost_connections: int = 0
    crashes: int = 0
    forced_moves: int = 0
    aborts: int = 0


SMALL: Final = {
    "pipeline": Scenario("ms", lost_connections=1),
    "pipeline-crash": Scenario("m", lost_connections=1, crashes=1),
    "two-changes": Scenario("mm", changes=2),
    "old-layouts": Scenario("m", singles=1, changes=2, crashes=1),
    "abort": Scenario("m", singles=1, aborts=1),
    "groups": Scenario(singles=2, changes=2, groups=1),
    "removal": Scenario(singles=1, groups=2, removes=True),
    "handover": Scenario(singles=2, groups=1, forced_moves=1),
    "late-group": Scenario(singles=1, changes=2, groups=2, late_group=True, removes=True),
    "reset": Scenario(singles=2, changes=2, groups=1, resets=1),
    "removed-producer": Scenario("mm", groups=1, removes=True, lost_connections=1),
}
"""Searched by each run of the tests, with and without mistakes."""

LARGE: Final = {
    "window-of-two": Scenario("ms", lost_connections=2, crashes=1),
    "window-of-three": Scenario("msm", lost_connections=1),
    "two-changes-under-a-window": Scenario("mm", changes=2, lost_connections=1),
    "any-layout": Scenario("m", singles=1, changes=2, crashes=2, aborts=1),
    "two-groups": Scenario(singles=3, changes=2, groups=2, removes=True, crashes=1),
    "moves-and-late-acks": Scenario(
        singles=3, changes=2, groups=1, removes=True, crashes=1, forced_moves=2
    ),
    "producer-and-group": Scenario("m", singles=1, changes=2, groups=1, crashes=1),
    "group-made-late": Scenario(singles=3, changes=2, groups=2, late_group=True, removes=True),
    "reset-that-may-die": Scenario(singles=2, changes=2, groups=1, resets=1, crashes=1),
    "window-of-three-crash": Scenario("msm", lost_connections=1, crashes=1),
    "two-changes-under-a-window-crash": Scenario("mm", changes=2, lost_connections=1, crashes=1),
}
"""Searched each night: minutes."""


ATTEMPTS: Final = "attempts"
"""The scenario of tests/model/rescale/numbered_rows.py, which is a model for itself."""

MUTANTS: Final = {
    "abort_after_seal": Mutant(
        "A change is aborted after its first seal, and the sealed partition takes messages again.",
        "abort", "R2"),
    "append_not_fenced": Mutant(
        "Redis stores the append of a broker that owned the partition before the present one.",
        "old-layouts", "R2"),
    "attempt_not_frozen": Mutant(
        "A sealed partition stores rows that are numbered for the layout before its seal.",
        ATTEMPTS, "R1"),
    "chain_not_rechecked": Mutant(
        "Batches that were checked before the seal are stored after it.", "old-layouts", "R2"),
    "deliver_at_once": Mutant(
        "A successor delivers without a gate.", "groups", "R4"),
    "due_read_early": Mutant(
        "An attempt asks which rows are stored before the partition is sealed.", ATTEMPTS, "R1"),
    "first_reset_without_id": Mutant(
        "A reset that begins before the first change is not told from one of single partitions.",
        "reset", "R4"),
    "gate_by_cursor_alone": Mutant(
        "A gate opens by the cursor of the predecessor, whose gate may be closed.",
        "groups", "R4"),
    "gate_asks_removed": Mutant(
        "A gate asks for the cursor in a predecessor that is removed, so it never opens.",
        "removal", "R6"),
    "gate_by_sent": Mutant(
        "A gate opens when the predecessor's messages are sent, not when they are acknowledged.",
        "groups", "R4"),
    "gate_not_compared": Mutant(
        "A late call opens a gate that a reset has closed since.", "reset", "R4"),
    "late_ack_counts": Mutant(
        "The ack of a member that has lost the partition moves the cursor.", "handover", "R4"),
    "move_in_doubt": Mutant(
        "A producer moves a slot while its earlier messages have no definite answer.",
        "pipeline", "R1"),
    "open_before_seal": Mutant(
        "A successor takes messages before its predecessor is sealed.", "old-layouts", "R2"),
    "remove_after_one_group": Mutant(
        "A partition is removed when one of the groups has passed it.", "removal", "R5"),
    "remove_forgets_producers": Mutant(
        "The numbers of producers are removed at once with a partition, and producers take the "
        "missing partition for the answer that nothing was stored.", "removed-producer", "R1"),
    "repeats_after_slots": Mutant(
        "A sealed partition refuses a slot before it checks whether the batch is a repeat.",
        "pipeline-crash", "R1"),
    "reset_ignores_seal": Mutant(
        "A reset by an old layout moves the cursor of a partition that is sealed since.",
        "reset", "R4"),
    "reset_does_not_hold": Mutant(
        "A reset closes a gate without holding it, so the predecessor's old cursor opens it.",
        "reset", "R4"),
    "reuse_numbers": Mutant(
        "A producer uses numbers again while copies of other batches may be on their way.",
        "pipeline", "R1"),
    "route_at_once": Mutant(
        "A producer sends new messages to the successor while older ones wait for the predecessor.",
        "two-changes", "R3"),
    "seal_before_commit": Mutant(
        "A broker seals by a layout that is only prepared.", "abort", "R8"),
    "seal_before_open": Mutant(
        "A partition is sealed by a second change before the first one has opened it.",
        "old-layouts", "R2"),
    "seal_in_memory": Mutant(
        "A broker that claims a sealed partition does not read the seal.", "old-layouts", "R2"),
}  # fmt: skip
