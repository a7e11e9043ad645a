"""Mistakes where two features meet: dead letters, resets, expiry, groups, quota, late packets."""

from partq.broker.dead_letters import DeadLetterOffice
from partq.broker.expiry import Expiry
from tests.simulate.mutation import Mutation, lua, text

LETTERS = {
    "has_letters": True, "max_redeliveries": 1, "takes_expired": False, "pull_share": 0.0,
    "work_s": 0.03, "ack_timeout_s": 0.0, "nack_order": "Ordered",
}  # fmt: skip
EXPIRING = {"has_letters": False, "pull_share": 0.0, "nack_order": "Ordered"}
NO_LATE_WRITE = ("tonumber(number) > tonumber(last)", "true")
NO_BIRTH = ('(stored_born or "0") ~= born', "false")

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
        lua("bind_member", ("meta[1] ~= ARGV[1]", "false"), NO_LATE_WRITE),
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
        "a group that is made again numbers its dead letters from the start",
        lua(
            "add_dead_letters",
            ('math.max(tonumber(cursor[2] or "0") + 1, now_ms)', 'tonumber(cursor[2] or "0") + 1'),
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
        lua(
            "flush_cursor",
            ("math.min(tonumber(ARGV[3]), lowest)", "tonumber(ARGV[3])"),
        ),
        frozenset({"marks"}),
        frozenset({"bad", "nack"}),
        LETTERS,
    ),
    Mutation(
        "a commit forgets the outbox in the mark",
        lua(
            "commit_handoff",
            ("math.min(tonumber(ARGV[8]), lowest)", "tonumber(ARGV[8])"),
        ),
        frozenset({"marks"}),
        frozenset({"bad", "nack", "pod_start", "pod_end", "broker_kill"}),
        LETTERS,
    ),
    Mutation(
        "a refusal for want of room advances the numbers",
        lua(
            "append_batches",
            (
                'verdict("Q", ',
                'if state then state.due = first + count; changed[name] = "old" end verdict("Q", ',
            ),
        ),
        frozenset({"G3", "G7"}),
        frozenset({"quota"}),
        {},
    ),
    Mutation(
        "a letter is taken out before the book is stored",
        text(DeadLetterOffice, "_step", ("await self._flusher.settle(subscription)", "pass")),
        frozenset({"letters"}),
        frozenset({"bad", "nack", "late"}),
        LETTERS,
    ),
    Mutation(
        "what a member has expires",
        text(Expiry, "_expire", ("start = book.position", "start = book.cursor")),
        frozenset({"S2"}),
        frozenset({"expire"}),
        EXPIRING | {"work_s": 0.4},
    ),
)
