"""Mistakes where two features meet: dead letters, resets, expiry, groups, quota, late packets."""

from partq.broker.dead_letters.forwarder import DeadLetterForwarder
from partq.broker.ownership.lease import LeaseKeeper
from partq.broker.ownership.owned_partitions import OwnedPartitions
from partq.broker.partition.consumed_partition import ConsumedPartition
from partq.broker.retention.expiry import Expiry
from partq.core.cursor.cursor import GroupCursor
from partq.lab.simulate.schedule import Event
from tests.lab.simulate.mutation import DRAWN, FROM_MEMORY, Mutation, both, code, lua, text

LETTERS = {
    "has_letters": True, "max_redeliveries": 1, "takes_expired": False, "pull_share": 0.0,
    "work_s": 0.03, "ack_timeout_s": 0.0, "nack_order": "Ordered",
}  # fmt: skip
EXPIRING = {"has_letters": False, "pull_share": 0.0, "nack_order": "Ordered"}
NO_FENCE = ("meta[1] ~= broker_epoch", "false")
NO_LATE_WRITE = ("tonumber(number) > tonumber(last)", "true")
NO_BIRTH = ('(stored_born or "0") ~= born', "false")

# ---- histories that one mistake needs, and chance seldom makes ----------------------------------

ALL_BAD = LETTERS | {"max_redeliveries": 0, "work_s": 0.0}
FORGOTTEN = "self.outbox.is_in_doubt = False"
RESET = {"to": "earliest", "is_forced": True}


def _resets_meet_messages_that_become_dead_letters(seed):
    reset = RESET | {"is_after_nack": True}
    pairs = [
        (Event(at / 20, "bad", {"count": 2}), Event(at / 20 + 0.05, "reset", reset))
        for at in range(18, 54, 3)
    ]
    return tuple(event for pair in pairs for event in pair)


def _a_reset_meets_a_move_without_an_answer(seed):
    reset = {"to": "latest", "is_forced": True, "is_after_move": True}
    return (
        Event(0.85, "reset", reset),
        Event(0.9, "bad", {"count": 1}),
        Event(1.0 + seed * 0.01, "publish", {"count": 3, "gap_s": 0.0}),
    )


def _resets_meet_binds_without_an_answer(seed):
    weather = {"for_s": 3.0, "lost": 0.0, "repeated": 0.0, "reset": 0.3, "slow": 0.0}
    crash = {"which": 0, "for_s": 0.05}
    return (
        Event(0.8, "storm", weather),
        *(Event(0.85 + n * 0.05, "reset", RESET | {"which": n}) for n in range(40)),
        *(Event(1.0 + n * 0.4, "pod_crash", crash) for n in range(5)),
    )


def _redis_forgets_while_messages_are_acknowledged(seed):
    return (
        *(Event(0.9 + n * 0.1, "publish", {"count": 5, "gap_s": 0.01}) for n in range(10)),
        Event(1.3 + seed * 0.05, "redis_rollback", {"for_s": 0.1, "lost_s": 0.4}),
    )


def _go_on(self, is_lost):
    """Keep what was believed of the partitions, though Redis is another one."""


FEATURE_MUTATIONS = (
    Mutation(
        "a late flush is written",
        lua("flush_cursor", NO_LATE_WRITE),
        frozenset({"S2", "marks"}),
        frozenset({"late"}),
        {},
    ),
    Mutation(
        "a late bind counts for the broker that claimed since",
        lua("bind_member", NO_FENCE, NO_LATE_WRITE),
        frozenset({"G8", "S1", "E3"}),
        frozenset({"late", "broker_end", "pod_crash"}),
        {"broker_count": 2},
    ),
    Mutation(
        "acks of a group's earlier life count",
        lua("flush_cursor", NO_BIRTH),
        frozenset({"S2"}),
        frozenset({"group_life"}),
        {},
    ),
    Mutation(
        "a group that is created again numbers its dead letters from the start",
        both(
            lua("add_group", ('"outbox_number", born', '"outbox_number", "0"')),
            lua("add_dead_letters", FROM_MEMORY),
        ),
        frozenset({"letters"}),
        frozenset({"group_life", "bad"}),
        LETTERS,
    ),
    Mutation(
        "the fastest group decides what is trimmed",
        lua("trim_log", ("math.min(lowest or math.huge, ", "math.max(lowest or 0, ")),
        frozenset({"S2", "marks"}),
        frozenset(),
        {"has_second": True, "work_s": 0.03},
    ),
    Mutation(
        "a flush forgets the outbox in the mark",
        lua("flush_cursor", ("ARGV[3], cursor[1])", "ARGV[3], nil)")),
        frozenset({"marks"}),
        frozenset({"bad", "nack"}),
        LETTERS,
    ),
    Mutation(
        "a commit forgets the outbox in the mark",
        lua("commit_handoff", ("ARGV[8], cursor[6])", "ARGV[8], nil)")),
        frozenset({"marks"}),
        frozenset({"bad", "nack", "pod_start", "pod_end", "broker_kill"}),
        LETTERS,
    ),
    Mutation(
        "a refusal for want of room advances the numbers",
        lua(
            "append_batches",
            (
                "    refuse(name, state)\n",
                '    if state then state.due = first + count; changed[name] = "old" end '
                "refuse(name, state)\n",
            ),
        ),
        frozenset({"G3", "G7"}),
        frozenset({"quota"}),
        {},
    ),
    Mutation(
        "a letter is taken out before the book is stored",
        text(
            DeadLetterForwarder,
            "_take_out",
            ("await self._cursor_writer.store(consumed)", "None"),
        ),
        frozenset({"letters"}),
        frozenset({"bad", "nack", "late"}),
        LETTERS,
    ),
    Mutation(
        "what a member has expires",
        text(Expiry, "_expire", ("book.unsent(", "book.undone(")),
        frozenset({"S2"}),
        frozenset({"expire"}),
        EXPIRING | {"work_s": 0.4},
    ),
    Mutation(
        "a reset keeps what is about to become a dead letter",
        text(ConsumedPartition, "begin_at", ("self.outbox.forget()", "[]")),
        frozenset({"letters"}),
        _resets_meet_messages_that_become_dead_letters,
        ALL_BAD,
    ),
    Mutation(
        "a reset has dead letters that wait delivered again",
        text(ConsumedPartition, "begin_at", ("if letters:", "if False:")),
        frozenset({"letters"}),
        _resets_meet_messages_that_become_dead_letters,
        ALL_BAD,
    ),
    Mutation(
        "a reset forgets that a move had no answer",
        text(ConsumedPartition, "begin_at", ("self.outbox.read(letters)", FORGOTTEN)),
        frozenset({"G7"}),
        _a_reset_meets_a_move_without_an_answer,
        ALL_BAD | {"has_second": False},
    ),
    Mutation(
        "a reset counts under an epoch that is over",
        lua("reset_cursor", ("known ~= ARGV[3]", "false")),
        frozenset({"E2"}),
        _resets_meet_binds_without_an_answer,
        {"pull_share": 0.0},
    ),
    Mutation(
        "a flush beyond the end of the log counts",
        both(
            lua("flush_cursor", ("tonumber(ARGV[7]) > tonumber(meta[3]) or", "")),
            code(OwnedPartitions, "drop_after_restart", _go_on),
        ),
        frozenset({"S2", "marks"}),
        _redis_forgets_while_messages_are_acknowledged,
        {"work_s": 0.0},
    ),
    Mutation(
        "a message goes out again before its count is stored",
        text(ConsumedPartition, "unbind", ("if self.book.in_flight:", "if False:")),
        frozenset({"counts"}),
        frozenset({"pod_crash", "nack"}),
        {"nack_order": "Ordered", "pull_share": 0.0},
    ),
    Mutation(
        "an ordered nack does not step back",
        text(GroupCursor, "_take_back", ("if is_free or lowest >= self.position:", "if True:")),
        frozenset({"S3", "G1"}),
        frozenset({"nack"}),
        {"nack_order": "Ordered", "pull_share": 0.0},
    ),
    Mutation(
        "a lease counts from the answer to its renewal",
        text(
            LeaseKeeper,
            "run",
            (
                "self._valid_until = began + self._ttl_s",
                "self._valid_until = self._clock() + self._ttl_s",
            ),
        ),
        frozenset({"S1"}),
        frozenset({"cut", "redis_kill", "slow"}),
        {},
    ),
    Mutation(
        "an owner that comes back does not affirm its partitions",
        lua(
            "affirm_partition",
            (DRAWN, 'tonumber(last or "0")'),
        ),
        frozenset({"G8"}),
        frozenset({"broker_freeze"}),
        {},
    ),
)
