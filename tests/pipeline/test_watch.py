"""How a job learns that it is to end."""

import pytest

from partq.pipeline.watch import JobWatch, StoppedError


def test_a_stop_makes_the_calls_of_the_block_it_comes_in():
    watch, calls = JobWatch(), []
    with watch.on_stop(lambda: calls.append("early")):
        pass
    with watch.on_stop(lambda: calls.append("now")):
        assert calls == []
        watch.stop()
        assert calls == ["now"]
    with watch.on_stop(lambda: calls.append("late")):
        assert calls == ["now", "late"]
    with pytest.raises(StoppedError):
        watch.check()
