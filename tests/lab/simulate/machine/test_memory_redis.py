"""The Redis of the simulator answers as a real one: whole seeds, with every call made to both."""

import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner

from partq.cli.commands import cli
from partq.lab.simulate.machine.memory_redis import MemoryRedis
from partq.lab.simulate.machine.real_redis import ComparedRedis, RealRedis
from partq.lab.simulate.schedule import draw_schedule
from partq.lab.simulate.trial import run_schedule
from partq.testing import eventually_blocking

FAULTS = {"pod_start", "pod_crash", "pod_end", "broker_kill", "coordinator_kill", "cut", "post"}
SCRIPTS = {"append_batches", "claim_partition", "commit_handoff", "trim_log"}


@pytest.fixture(scope="module")
def real():
    with RealRedis() as server:
        yield server


@pytest.mark.parametrize("faults", [FAULTS, FAULTS | {"redis_rollback", "redis_kill"}], ids=len)
def test_a_seed_is_the_same_beside_a_real_redis(real, faults):
    for seed in range(2):
        schedule = draw_schedule(seed, 20, only=faults)
        compared = run_schedule(schedule, partial(ComparedRedis, real))
        assert compared.violation is None, "\n".join(compared.lines())
        assert compared.digest == run_schedule(schedule).digest
    assert real.scripts_run >= SCRIPTS


def test_another_answer_is_told(real, monkeypatch):
    fields = MemoryRedis._do_hkeys

    def without_groups(self, args):
        return [name for name in fields(self, args) if not name.startswith(b"mark:")]

    monkeypatch.setattr(MemoryRedis, "_do_hkeys", without_groups)
    found = run_schedule(draw_schedule(0, 5), partial(ComparedRedis, real)).violation
    assert found.invariant == "error"
    assert "claim_partition" in found.text
    assert "a real one answers" in found.text


_SERVING = """
from partq.lab.simulate.machine.real_redis import RealRedis
with RealRedis() as real:
    print(real.ask(b"INFO", b"server").decode().partition("process_id:")[2].split()[0], flush=True)
    input()
"""


def test_a_server_ends_with_who_is_killed():
    """As its process is when a run on many is cut off."""
    command = [sys.executable, "-c", _SERVING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        server = Path("/proc", process.stdout.readline().decode().strip(), "cmdline")
        assert b"redis-server" in server.read_bytes()
        process.kill()

    def has_ended():
        with suppress(FileNotFoundError, ProcessLookupError):
            return not server.read_bytes()  # nothing, where nobody has asked for its status yet
        return True

    eventually_blocking(has_ended, "the server ends")


def test_the_command_compares(monkeypatch):
    answer = CliRunner().invoke(cli, ["simulate", "--real-redis", "--seeds", "1", "--events", "5"])
    assert answer.exit_code == 0, answer.output
    assert "1 of 1 seeds of 5 events" in answer.output
    monkeypatch.setattr(MemoryRedis, "_do_hget", lambda self, args: b"0")
    answer = CliRunner().invoke(cli, ["simulate", "--real-redis", "--seeds", "1", "--events", "5"])
    assert answer.exit_code == 1
    assert "DifferentAnswerError" in answer.output
    assert "again: partq simulate --seed 0 --events 5 --real-redis" in answer.output


def test_without_a_redis_server_it_says_so(monkeypatch):
    monkeypatch.setattr("partq.embedded.redis_process.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    answer = CliRunner().invoke(cli, ["simulate", "--real-redis", "--seeds", "2"])
    assert answer.exit_code == 2
    assert "no redis-server" in answer.output
