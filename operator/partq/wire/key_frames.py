"""Frames about single keys: slots that are asked back, or go to a flow, and states of keys."""

from partq.wire.frame import Frame, Range


class AskBack(Frame, tag=42):
    """Drop what the application has not got of these slots; say in `Returned` what that was.

    Under an assignment that is `KEYED`: after a nack (before its answer) or an ack timeout, and of
    all slots behind `Paused` and at a `Withhold`. Until the answer nothing of these slots is
    delivered.
    """

    generation: int
    partition: int
    broker_epoch: int
    epoch: int
    notice: int
    """Names the request in its answer; from 1."""
    lanes: list[tuple[int, int]]
    """Slots from the first to the second, the second excluded."""


class Returned(Frame, tag=43):
    """The client gives back the messages in `ranges`: the application has got none of them.

    They are redelivered without a cause. Under an assignment that is `KEYED`, in the place of a
    `Release`.
    """

    generation: int
    partition: int
    broker_epoch: int
    epoch: int
    notice: int
    """Of the `AskBack` that this answers; 0: of none, before the client closes the connection."""
    ranges: list[Range]


class Lanes(Frame, tag=44):
    """The slots that go to this flow, in a group of type KeyShared.

    It follows `Assigned`, and each change of them. Deliveries of the epoch `epoch` come after it;
    acks of earlier ones still count. What came of slots that are another's now is asked for by
    `AskBack`, and what has begun of them continues.
    """

    generation: int
    partition: int
    broker_epoch: int
    epoch: int
    lanes: list[Range]
    """From the first to the second, the second excluded."""


class ReadState(Frame, tag=46):
    """Return the state of a key, with all acks of this connection before it."""

    request: int
    generation: int
    partition: int
    broker_epoch: int
    epoch: int
    key: str


class State(Frame, tag=47):
    """The state of a key that was asked for; None: it has none."""

    request: int
    state: bytes | None


class StateRefused(Frame, tag=48):
    """The answer to a `ReadState` that failed; `code` names the error."""

    request: int
    code: str
    message: str
