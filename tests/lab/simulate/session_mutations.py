"""Mistakes that somebody could make where members lock sessions."""

from partq.broker.sessions import session_acceptor
from partq.broker.sessions.session_shares import SessionShares
from partq.client.sessions.session_consumer import SessionConsumer
from partq.core.group.planner import GroupType
from partq.core.sessions.session_book import SessionBook
from partq.core.sessions.session_locks import SessionLocks
from partq.lab.simulate.schedule import WIDE, Event
from tests.lab.simulate.mutation import Mutation, code, lua, text

SESSIONS = {
    "nack_order": "Key", "nack_s": 0.05, "max_parked_keys": 1024, "ack_timeout_s": 0.0,
    "pull_share": 0.0, "has_letters": False, "is_audited": False, "work_s": 0.1,
    "partition_count": 1, "broker_count": 1, "pod_count": 3, "delay_s": 0.0, "max_handoff_s": 1.0,
    "is_client_assigned": False, "group_type": GroupType.SESSION, "lock_s": 2.0, "max_span": WIDE,
    "has_states": False, "on_exhausted": "Skip",
}  # fmt: skip


def many_kills(seed: int) -> tuple[Event, ...]:
    """Kill brokers one after another: what a lost connection leaves lasts for a moment only."""
    del seed
    return tuple(
        event
        for at in range(12)
        for event in (
            Event(0.6 + at * 0.4, "publish", {"count": 6, "gap_s": 0.02}),
            Event(0.85 + at * 0.4, "broker_kill", {"which": at, "for_s": 0.05, "is_silent": False}),
        )
    )


SESSION_MUTATIONS = (
    Mutation(
        "the next broker forgets who has which session",
        code(session_acceptor, "restored_locks", lambda *_, **__: []),
        frozenset({"L1"}),
        frozenset({"broker_kill", "pod_freeze"}),
        SESSIONS,
    ),
    Mutation(
        "a session whose member is not connected is anybody's",
        text(
            SessionShares,
            "may_lock",
            ("is_own = lock.is_of(flow.member, flow.incarnation)", "is_own = True"),
        ),
        frozenset({"L1"}),
        frozenset({"cut", "pod_crash"}),
        SESSIONS,
    ),
    Mutation(
        "a renewal does not count",
        text(SessionShares, "renew", ("lock.until = max(lock.until, written.until)", "pass")),
        frozenset({"L2"}),
        frozenset({"hang"}),
        SESSIONS | {"lock_s": 1.0, "work_s": 0.4},
    ),
    Mutation(
        "a lock ends a while before its time",
        code(SessionLocks, "over", lambda locks, now: [x for x in locks if x.until <= now + 1.0]),
        frozenset({"L2"}),
        frozenset({"hang"}),
        SESSIONS | {"lock_s": 1.0, "work_s": 0.4},
    ),
    Mutation(
        "locks have no numbers of their own",
        lua("lock_session", ("number = draw_above(highest)", "number = 1")),
        frozenset({"L3"}),
        frozenset({"nack"}),
        SESSIONS,
    ),
    Mutation(
        "the first message of a session is left out",
        text(
            SessionBook,
            "claim",
            ("self._hand(number, self.cursor,", "self._hand(number, self.cursor + 1,"),
        ),
        frozenset({"K2", "G7"}),
        frozenset({"nack"}),
        SESSIONS,
    ),
    Mutation(
        "a consumer asks by its name for what it has",
        code(SessionConsumer, "_holds", lambda *_: False),
        frozenset({"L1"}),
        many_kills,
        SESSIONS | {"pod_count": 1, "broker_count": 2, "partition_count": 4, "work_s": 0.4},
    ),
    Mutation(
        "a consumer takes a session whose time is over",
        code(SessionConsumer, "_is_locked", lambda *_: True),
        frozenset({"L1"}),
        frozenset({"pod_freeze"}),
        SESSIONS | {"lock_s": 1.0},
    ),
    Mutation(
        "a lock in a former partition of the broker does not count",
        code(session_acceptor, "_locked_before", lambda *_: []),
        frozenset({"L1"}),
        frozenset({"rescale", "broker_kill"}),
        SESSIONS | {"partition_count": 2, "lock_s": 2.0},
    ),
    Mutation(
        "two sessions have one token",
        text(
            SessionShares,
            "_open",
            ("max(self.round, whole.epoch, whole.share_epochs.top) + 1", "whole.epoch + 1"),
        ),
        frozenset({"S1"}),
        frozenset({"nack"}),
        SESSIONS,
    ),
)
