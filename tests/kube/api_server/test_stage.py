"""What a failed test shows of an operator's log."""

from tests.kube.api_server.stage import TRACE_CONTEXT, traces

AT = "2026-01-01T00:00:00.000 INFO    partq.kube: line"


def test_a_trace_is_shown_with_the_lines_around_it_and_without_the_rest():
    trace = ["Traceback (most recent call last):", '  File "a.py", line 1', "ValueError: x"]
    before, behind = ([f"{AT} {n}" for n in each] for each in (range(90), range(100, 200)))
    (shown,) = traces("\n".join([*before, *trace, "", *trace, *behind]))
    lines = shown.splitlines()
    assert lines == [*before[-TRACE_CONTEXT:], *trace, "", *trace, *behind[:TRACE_CONTEXT]]
    assert traces("\n".join(before)) == []
