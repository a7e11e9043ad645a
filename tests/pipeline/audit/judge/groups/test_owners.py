"""Which token holds."""

from tests.pipeline.audit.judge.small_record import OWNER, ack, deliver, found, publish


def test_the_highest_token_holds_whatever_is_drawn_after_it():
    told = [
        *OWNER, ("bind", 5, {"epoch": 9}), ("bind", 6, {"epoch": 8}),
        publish(10, 0, 2), deliver(11, 0, 2, epoch=9), ack(12, 0, 2, epoch=9),
    ]  # fmt: skip

    assert found(*told) == ["epoch_not_raised"]
