"""What a resource says of a group whose members share partitions by key."""

from typing import Literal

from pydantic import Field, field_validator

from partq.core.parts.part_id import DEFAULT_PARTS
from partq.resources.base import Model

PARTS_RULE = (
    f"(has(self.keyShared) ? self.keyShared.parts : {DEFAULT_PARTS}) == "
    f"(has(oldSelf.keyShared) ? oldSelf.keyShared.parts : {DEFAULT_PARTS})",
    "keyShared.parts: a group keeps the parts that it was made with",
)
TYPE_RULE = (
    "self.type == oldSelf.type || "
    "!(self.type in ['KeyShared', 'Shared'] || oldSelf.type in ['KeyShared', 'Shared'])",
    "type: a group that is made as KeyShared or Shared stays so, and no other one becomes so; "
    "make another group",
)
USE_RULE = (
    "self.type == 'KeyShared' || !has(self.keyShared)",
    "keyShared: expected it to be left out for other types than KeyShared",
)
ORDER_RULE = (
    "self.type != 'KeyShared' || !has(self.nack) || self.nack.order != 'Free'",
    "nack.order: a group of the type KeyShared has the order Key",
)


class KeySharedPolicy(Model):
    """How members share the keys of partitions."""

    parts: Literal[1, 2, 4, 8, 16, 32, 64] = DEFAULT_PARTS
    """Into how many parts each partition is cut, by the slots of its keys. A member has whole
    parts. A queue may have 65,536 in all. The number never changes."""
    hash_range: Literal["Balanced", "AutoSplit", "ConsistentHash", "Sticky"] = Field(
        default="Balanced"
    )
    """How the parts are shared out. Balanced: evenly, and as few move as that allows. AutoSplit:
    a new member takes half of the largest region of slots, and a region that is left goes to its
    neighbour, as in Pulsar. ConsistentHash: by 100 points per member on a ring of slots, as in
    Pulsar. Sticky: each member declares the slots that it wants, of whole parts; nobody has the
    rest."""

    @field_validator("parts", mode="before")
    @classmethod
    def _as_written(cls, value: object) -> object:
        """Have `true`, which equals 1, refused as the text that it is."""
        return str(value).lower() if isinstance(value, bool) else value
