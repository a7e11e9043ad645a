"""Why an event loop stands still: a handler that blocks it, or a machine without CPU."""

import os
import signal
import subprocess
import sys
import time

import pytest

from partq.client.consume.process.stall import StallCause, StallWatch, warning_of

GAP_S = 0.25
LEAST_S = 3.0
WAIT_S = 60.0
BLOCKED, HELD, STARVED = StallCause.BLOCKED, StallCause.INTERPRETER_HELD, StallCause.STARVED


def looks(*rounds):
    """Return the cause at each look; a round is how long it took, and the CPU time within."""
    watch = StallWatch(gap_s=GAP_S, now=0.0, cpu_s=0.0)
    now = cpu_s = 0.0
    causes = []
    for round_s, round_cpu_s in rounds:
        now, cpu_s = now + round_s, cpu_s + round_cpu_s
        causes.append(watch.stands(now, cpu_s, now, least_s=LEAST_S))
    return causes


@pytest.mark.parametrize(
    ("rounds", "last"),
    [
        pytest.param([(GAP_S, 0.0)] * 12, BLOCKED, id="it waits, and the thread is in time"),
        pytest.param([(GAP_S, GAP_S)] * 12, BLOCKED, id="it computes, and the thread is in time"),
        pytest.param([(GAP_S, 0.0)] * 11, None, id="not for long enough"),
        pytest.param([(10.0, 0.01)], STARVED, id="nothing ran, as in a suspended process"),
        pytest.param([(2.0, 0.1)] * 5, STARVED, id="hardly anything ran"),
        pytest.param([(10.0, 9.9)], HELD, id="one thread computed, and no other ran"),
        pytest.param([(10.0, 0.0)] + [(GAP_S, 0.0)] * 12, BLOCKED, id="starved, then blocked"),
        pytest.param([(2.0, 0.0)], None, id="starved for a short time"),
        pytest.param([(1.0, 0.0), *[(GAP_S, 0.0)] * 10], None, id="some of both"),
    ],
)
def test_the_cause(rounds, last):
    assert looks(*rounds)[-1] is last


def test_a_loop_that_runs_again_starts_afresh():
    watch = StallWatch(gap_s=GAP_S, now=0.0, cpu_s=0.0)
    assert watch.stands(10.0, 0.0, 10.0, least_s=LEAST_S) is STARVED
    watch.runs(10.25, 5.0)
    assert watch.stands(13.5, 5.0, 3.25, least_s=LEAST_S) is STARVED
    watch.runs(13.75, 5.0)
    for step in range(1, 12):
        now = 13.75 + step * GAP_S
        assert watch.stands(now, 5.0, now - 13.75, least_s=LEAST_S) is None
    assert watch.stands(16.75, 5.0, 3.0, least_s=LEAST_S) is BLOCKED


@pytest.mark.parametrize(
    ("cause", "state", "advice"),
    [
        pytest.param(
            BLOCKED, "in save() at app.py:7", "run(callback, in_thread=True)", id="blocked"
        ),
        pytest.param(HELD, "in save() at app.py:7", "let a separate process do it", id="held"),
        pytest.param(STARVED, "it got hardly any CPU", "No handler is to blame", id="starved"),
    ],
)
def test_the_warning_says_cause_and_advice(cause, state, advice):
    text = warning_of(
        cause, loop="the loop", stalled_s=3.04, where="in save() at app.py:7", kept_s=300.0
    )
    assert text.startswith("the loop has stood still for 3.0 s, ")
    assert state in text.split(": no message is handed out")[0]
    assert "kept for 300 s (max_processing_s)" in text
    assert advice in text.split("(max_processing_s). ")[1]


PROGRAM = """
import asyncio, logging, os, signal, sys, time
from partq.client.consume.process import heartbeat
from partq.client.transport.options import ConnectionOptions
from partq.client.transport.session import Session

heartbeat.WARN_S = 1.0

async def main():
    session = Session(ConnectionOptions("http://127.0.0.1:1", "orders", token="t"))
    beating = heartbeat.Heartbeat(session, lambda: [], incarnation="i", max_processing_s=300)
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(2 * heartbeat.BEAT_S)  # the thread looks before the loop runs again
    await beating.close()

logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stdout)
asyncio.run(main())
"""


def test_a_process_that_was_suspended_blames_no_handler():
    """It was the whole process that stood still."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            time.sleep(3.0)  # the stop itself
            os.kill(process.pid, signal.SIGCONT)
            told, _ = process.communicate(timeout=WAIT_S)
        finally:
            process.kill()
    assert "has stood still for" in told
    # On a busy machine the loop may stand still another time, too, and a handler be named for that.
    suspended = [line for line in told.splitlines() if "No handler is to blame" in line]
    assert suspended, told
    assert not any("in_thread" in line for line in suspended)
