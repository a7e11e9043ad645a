"""What a failed test shows of an operator's log."""

from tests.kube.api_server.stage import KOPF_AT_ITS_END, TRACE_CONTEXT, traces

AT = "2026-01-01T00:00:00.000 INFO    partq.kube: line"


def test_a_trace_is_shown_with_the_lines_around_it_and_without_the_rest():
    trace = ["Traceback (most recent call last):", '  File "a.py", line 1', "ValueError: x"]
    before, behind = ([f"{AT} {n}" for n in each] for each in (range(90), range(100, 200)))
    (shown,) = traces("\n".join([*before, *trace, "", *trace, *behind]))
    lines = shown.splitlines()
    assert lines == [*before[-TRACE_CONTEXT:], *trace, "", *trace, *behind[:TRACE_CONTEXT]]
    assert traces("\n".join(before)) == []


def test_a_look_of_kopf_that_the_end_has_cut_off_is_no_trace_and_another_one_is():
    def log(task, error):
        return (
            f"{AT} 1\n2026-01-01T00:00:00.000 ERROR   asyncio: Task exception was never retrieved\n"
            f"future: <Task finished name='Task-3' coro=<{task}() done> exception=...>\n"
            "Traceback (most recent call last):\n"
            f'  File "a.py", line 1\n{error}\n{AT} 2'
        )

    closed = "aiohttp.client_exceptions.ClientConnectionError: Connection closed"
    assert KOPF_AT_ITS_END.sub("", log("_read_new_apis", closed)) == f"{AT} 1\n\n{AT} 2"
    for other in (log("_look", closed), log("_read_new_apis", "ValueError: x")):
        assert traces(KOPF_AT_ITS_END.sub("", other))
