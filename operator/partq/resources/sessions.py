"""What a resource says of groups whose members lock sessions: all messages of a key, each."""

from typing import Annotated

from pydantic import Field

from partq.resources.base import Model
from partq.resources.rebalance import BALANCE_FIELDS, RebalanceOverrides
from partq.resources.redelivery import AckPolicy, NackPolicy

_DEFAULT_MAX_STATES = AckPolicy().max_states

SESSION_TYPE_RULE = (
    "self.type == oldSelf.type || self.type != 'Session' && oldSelf.type != 'Session'",
    "type: a group that is made as Session stays so, and no other one becomes Session; make "
    "another group",
)
SESSION_USE_RULE = (
    "self.type == 'Session' || !has(self.session)",
    "session: expected it to be left out for other types than Session",
)
SESSION_ORDER_RULE = (
    "self.type != 'Session' || "
    "((!has(self.nack) || self.nack.order != 'Free') && "
    "(!has(self.ack) || self.ack.onExhausted == 'Skip'))",
    "nack.order, ack.onExhausted: a group of the type Session has the order Key, and a message "
    "that failed too often is skipped",
)
SESSION_STATES_RULE = (
    f"self.type != 'Session' || !has(self.ack) || self.ack.maxStates == {_DEFAULT_MAX_STATES}",
    "ack.maxStates: expected it to be left out for the type Session, which has session.maxSessions",
)
SESSION_BALANCE_RULE = (
    "self.type != 'Session' || !has(self.rebalance) || "
    + " && ".join(f"!has(self.rebalance.{name})" for name in BALANCE_FIELDS),
    "rebalance: in a group of the type Session nothing moves for balance and nobody stands by: "
    f"leave out {', '.join(BALANCE_FIELDS)}",
)
SESSION_RULES = (
    SESSION_USE_RULE,
    SESSION_ORDER_RULE,
    SESSION_STATES_RULE,
    SESSION_BALANCE_RULE,
    SESSION_TYPE_RULE,
)


class SessionPolicy(Model):
    """How members lock sessions, and what they leave of them."""

    lock_seconds: Annotated[float, Field(ge=5, le=300)] = 60
    """How long a member has a session without a renewal of its lock; the library renews it. Then
    the session is another one's, and what the member held of it is redelivered."""
    max_state_bytes: Annotated[int, Field(ge=1, le=65_536)] = 65_536
    """The largest state of a session. States count to the queue's `limits.maxSpoolBytes`."""
    max_sessions: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    """How many sessions of a partition may have a state. At the limit an acknowledgement that adds
    a state is refused."""


def check_session(
    kind: str,
    session: SessionPolicy | None,
    ack: AckPolicy,
    nack: NackPolicy,
    rebalance: RebalanceOverrides,
) -> None:
    """See that what concerns sessions is said in groups of the type Session only, and fits it.

    Raises:
        ValueError: it does not; names the field.
    """
    if kind != "Session":
        if session is not None:
            raise ValueError(
                f"session: got it with the type {kind!r}, expected it to be left out: only in a "
                "group of the type Session members lock sessions"
            )
        return
    if nack.order == "Free":
        raise ValueError(
            "nack.order: got 'Free' with the type 'Session', expected 'Key', or nothing: in such "
            "a group a message that is given back holds up its session, and no other one"
        )
    if ack.on_exhausted != "Skip":
        raise ValueError(
            f"ack.onExhausted: got {ack.on_exhausted!r} with the type 'Session', expected 'Skip': "
            "sessions are not blocked for good; leave it out"
        )
    if ack.max_states != _DEFAULT_MAX_STATES:
        raise ValueError(
            f"ack.maxStates: got {ack.max_states} with the type 'Session', expected it to be left "
            "out: session.maxSessions bounds the states; set that"
        )
    if given := rebalance.balance_fields:
        raise ValueError(
            f"rebalance.{given[0]}: got it with the type 'Session', expected it to be left out: "
            "each member may take any session, so nothing moves for balance and nobody stands by"
        )
