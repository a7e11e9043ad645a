"""What a resource says of messages that a group does not acknowledge, or gives back."""

from typing import Annotated, Literal

from pydantic import Field

from partq.resources.base import Model

_Wait = Annotated[float, Field(ge=0, le=86_400)]


class BackoffPolicy(Model):
    """Waiting times that grow with each redelivery of a message."""

    min_seconds: _Wait = 1
    """How long its first redelivery waits."""
    max_seconds: _Wait = 60
    """The longest time that a redelivery waits."""
    multiplier: Annotated[float, Field(ge=1, le=100)] = 2
    """How many times longer each redelivery waits than the one before."""


class AckPolicy(Model):
    """How a group's messages are acknowledged."""

    timeout_seconds: _Wait = 0
    """How long the application may hold a message without an acknowledgement before it is
    redelivered, also while it is still being processed; 0: without limit."""
    tick_seconds: Annotated[float, Field(ge=0.25, le=3600)] = 1
    """How often that is looked at."""
    backoff: BackoffPolicy | None = None
    """How long such a message waits before it is delivered again; left out: not at all."""

    max_redeliveries: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """How often a message is redelivered because it failed; then it is moved to the dead-letter
    queue. Left out: no limit."""
    on_exhausted: Literal["Skip", "Block", "Quarantine"] = "Skip"
    """In a group whose `nack.order` is Key: what becomes of the key of a message that was
    redelivered as often as `maxRedeliveries` allows, and failed again. Skip: the message is moved
    to the dead-letter queue, and its key continues. Block: the key waits until it is released.
    Quarantine: the message, and all that follow of its key, are moved to the dead-letter queue in
    their order, until the key is released."""
    max_span: Annotated[int, Field(ge=1_000, le=100_000)] = 20_000
    """In a group whose `nack.order` is Key, or whose type is Shared: how many messages above the
    first one without an acknowledgement may be delivered in a partition. A key or message that
    waits holds that one back; at the limit the partition stops for the group until it is
    acknowledged."""
    max_states: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    """How many keys of a partition may have a state, which the application leaves with the
    acknowledgement of a message. Each has at most 64 KiB; they count to the queue's
    `limits.maxSpoolBytes`. At the limit an acknowledgement that adds a state is refused."""


class NackPolicy(Model):
    """What becomes of messages that the application gives back."""

    order: Literal["Ordered", "Free", "Key"] = "Ordered"
    """Ordered: what is behind the message in its partition waits for it and is delivered again,
    too. Free: the message is redelivered alone, out of its order. Key: what is behind it of its
    key waits for it, and the other keys of the partition continue."""
    delay_seconds: _Wait = 60
    """How long the message waits before it is delivered again, unless the application says so."""
    backoff: BackoffPolicy | None = None
    """Waits that replace `delaySeconds`; left out: every wait is `delaySeconds` long."""
    max_parked_keys: Annotated[int, Field(ge=1, le=4_096)] = 1_024
    """In a group whose order is Key: how many keys of a partition may wait at once. Beyond, the
    partition stops for the group, as in Ordered, until one has waited long enough. Each takes up to
    20 bytes of the group's record."""


_HAS_ORDER_KEY = (
    "self.type in ['KeyShared', 'Session'] || "
    "(has(self.nack) && has(self.nack.order) && self.nack.order == 'Key')"
)
HELD_KEYS_RULE = (
    "!has(self.ack) || !has(self.ack.onExhausted) || self.ack.onExhausted == 'Skip' || "
    f"(({_HAS_ORDER_KEY}) && has(self.ack.maxRedeliveries))",
    "ack.onExhausted: expected 'Skip' where nack.order is not 'Key', or without "
    "ack.maxRedeliveries",
)
KEY_BOUNDS_RULE = (
    f"{_HAS_ORDER_KEY} || ((self.type == 'Shared' || "
    "!has(self.ack) || !has(self.ack.maxSpan) || self.ack.maxSpan == 20000) && "
    "(!has(self.nack) || !has(self.nack.maxParkedKeys) || self.nack.maxParkedKeys == 1024))",
    "ack.maxSpan and nack.maxParkedKeys: expected them to be left out where nack.order is not "
    "'Key'; a group of the type Shared has ack.maxSpan",
)


def check_key_order(
    order: str, ack: AckPolicy, nack: NackPolicy, *, has_span: bool = False
) -> None:
    """See that what concerns keys that wait is said in the order Key only.

    `has_span`: in the group `ack.maxSpan` counts all the same.

    Raises:
        ValueError: it is said in another order, or without what it needs.
    """
    ends = ack.on_exhausted
    if ends != "Skip" and order != "Key":
        raise ValueError(
            f"ack.onExhausted: got {ends!r} with nack.order {order!r}, expected 'Skip': only in "
            "the order 'Key' a key can be blocked or in quarantine; set nack.order to 'Key', or "
            "leave onExhausted out"
        )
    if ends != "Skip" and ack.max_redeliveries is None:
        raise ValueError(
            f"ack.onExhausted: got {ends!r} without ack.maxRedeliveries, expected 'Skip': without "
            "that limit no message fails too often; set maxRedeliveries"
        )
    if order == "Key":
        return
    for name, got, default in (
        ("ack.maxSpan", ack.max_span, AckPolicy().max_span),
        ("nack.maxParkedKeys", nack.max_parked_keys, NackPolicy().max_parked_keys),
    ):
        if got != default and not (has_span and name == "ack.maxSpan"):
            raise ValueError(
                f"{name}: got {got} with nack.order {order!r}, expected it to be left out: it "
                "bounds keys that wait, which there are in the order 'Key' only; set nack.order "
                f"to 'Key', or leave {name.partition('.')[2]} out"
            )
