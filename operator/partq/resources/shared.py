"""What a resource says of a group in which any member gets any message."""

FREE_RULE = (
    "self.type != 'Shared' || !has(self.nack) || self.nack.order != 'Key'",
    "nack.order: a group of the type Shared has the order Free",
)


def check_shared(type_: str, strategy: str | None, order: str) -> None:
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
    if order == "Key":
        raise ValueError(
            "nack.order: got 'Key' with the type 'Shared', expected 'Free', or nothing: in such a "
            "group no message waits for another; the type KeyShared keeps keys in order"
        )
