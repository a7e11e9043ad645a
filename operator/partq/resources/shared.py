"""What a resource says of a group in which any member gets any message."""

from partq.resources.rebalance import BALANCE_FIELDS, RebalanceOverrides
from partq.resources.redelivery import AckPolicy, NackPolicy

_DEFAULT_MAX_STATES = AckPolicy().max_states
_DEFAULT_MAX_PARKED_KEYS = NackPolicy().max_parked_keys

SHARED_RULES = (
    (
        "self.type != 'Shared' || !has(self.nack) || self.nack.order != 'Key'",
        "nack.order: a group of the type Shared has the order Free",
    ),
    (
        f"self.type != 'Shared' || !has(self.ack) || self.ack.maxStates == {_DEFAULT_MAX_STATES}",
        "ack.maxStates: expected it to be left out for the type Shared, which keeps no states",
    ),
    (
        "self.type != 'Shared' || !has(self.rebalance) || "
        + " && ".join(f"!has(self.rebalance.{name})" for name in BALANCE_FIELDS),
        "rebalance: in a group of the type Shared nothing moves for balance and nobody stands by: "
        f"leave out {', '.join(BALANCE_FIELDS)}",
    ),
)


def check_shared(
    type_: str,
    strategy: str | None,
    ack: AckPolicy,
    nack: NackPolicy,
    rebalance: RebalanceOverrides,
) -> None:
    """See that a group of the type Shared says nothing of other types.

    Raises:
        ValueError: it does.
    """
    if type_ != "Shared":
        return
    if strategy is not None:
        raise ValueError(
            f"strategy: got {strategy!r} with the type 'Shared', expected it to be left out: any "
            "member gets any message, so nothing is assigned"
        )
    if nack.order == "Key":
        raise ValueError(
            "nack.order: got 'Key' with the type 'Shared', expected 'Free', or nothing: in such a "
            "group no message waits for another; the type KeyShared keeps keys in order"
        )
    if ack.on_exhausted != "Skip":
        raise ValueError(
            f"ack.onExhausted: got {ack.on_exhausted!r} with the type 'Shared', expected 'Skip': "
            "in such a group no key can wait; leave it out"
        )
    for name, got, default in (
        ("ack.maxStates", ack.max_states, _DEFAULT_MAX_STATES),
        ("nack.maxParkedKeys", nack.max_parked_keys, _DEFAULT_MAX_PARKED_KEYS),
    ):
        if got != default:
            raise ValueError(
                f"{name}: got {got} with the type 'Shared', expected it to be left out: in such a "
                "group keys neither wait nor have a state"
            )
    if given := rebalance.balance_fields:
        raise ValueError(
            f"rebalance.{given[0]}: got it with the type 'Shared', expected it to be left out: any "
            "member gets any message, so nothing moves for balance and nobody stands by"
        )
