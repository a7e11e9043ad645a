"""What is said of a call that was not carried out everywhere, and when a repeat is advised."""

import pytest

from partq.cli.queues.broker_session import unfinished
from partq.wire.calls.answers import ErrorDetail

LASTS = ErrorDetail("conflict", "group g consumes it")
PASSES = ErrorDetail("not_owner", "no broker serves it")
NEW = ErrorDetail("of_a_later_version", "something")


@pytest.mark.parametrize(
    ("failures", "text"),
    [
        (
            [PASSES],
            "1 of 3 partitions are not done, such as 1.0: no broker serves it; run it again",
        ),
        ([LASTS], "1 of 3 partitions are not done, such as 1.0: group g consumes it"),
        ([NEW], "1 of 3 partitions are not done, such as 1.0: something"),
        (
            [PASSES, LASTS, PASSES],
            "3 of 3 partitions are not done, such as 1.1: group g consumes it; for 2 of them it "
            "may help to run it again",
        ),
    ],
)
def test_a_repeat_is_advised_only_where_it_can_help(failures, text):
    rows = [(f"1.{index}", failure) for index, failure in enumerate(failures)]
    assert unfinished(rows, 3).message == text
