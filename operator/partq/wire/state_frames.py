"""Frames that read states of keys, over the WebSocket of a flow."""

from partq.wire.frame import Frame


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
