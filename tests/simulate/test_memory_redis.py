"""The Redis of the simulator answers as a real one: the calls of some seeds, made to both."""

import pytest
import redis

from partq.simulate.schedule import draw_schedule
from partq.simulate.stored import BLOCKED
from partq.simulate.stored import RedisServer as SimulatedServer
from partq.simulate.trial import run_schedule
from partq.store.lua import load_scripts
from partq.testing.redis_server import RedisServer

FAULTS = {"pod_start", "pod_crash", "pod_end", "broker_kill", "coordinator_kill", "cut", "post"}
SCRIPTS = load_scripts((7, 2, 0))
OWN_IDS = {"add_event", "release_life"}
"""Their answers hold a time of the server, which is not the simulated one."""
TIME_KEY = b"simulated-time"


@pytest.fixture
def calls(monkeypatch):
    """What was asked of the simulated server, at which time, and what it answered."""
    made = []
    execute = SimulatedServer.execute

    def record(self, process, command, late):
        now = self.time()
        answer = execute(self, process, command, late)
        made.append((now, list(command), answer, dict(self._known)))
        return answer

    monkeypatch.setattr(SimulatedServer, "execute", record)
    return made


@pytest.fixture
def server(tmp_path):
    with RedisServer() as own:
        own.start(tmp_path)
        with redis.Redis.from_url(own.url) as client:
            yield client


@pytest.mark.parametrize("seed", range(3))
def test_the_calls_of_a_seed(calls, server, seed):
    outcome = run_schedule(draw_schedule(seed, 20, only=FAULTS))
    assert outcome.violation is None
    compared = set()
    for now, command, answer, known in calls:
        name = command[0]
        if name == b"EVALSHA":
            script = known.get(command[1])
            if script is None:
                continue
            name = script.name.encode()
            real = run_script(server, script.name, now, command)
        elif name in {b"HGETALL", b"HGET", b"HMGET", b"XRANGE", b"XREVRANGE"}:
            if command[1] == b"partq:events":
                continue
            real = server.execute_command(*command, NEVER_DECODE=True)
        else:
            continue
        assert answer is not BLOCKED
        if name.decode() not in OWN_IDS:
            assert plain(real) == plain(answer), command
            compared.add(name)
    assert {b"append_batches", b"claim_partition", b"commit_handoff", b"trim_log"} <= compared


def run_script(server, name, now, command):
    """Run a script on the real server, at the simulated time."""
    micros = round(now * 1_000_000)
    server.delete(TIME_KEY)
    server.rpush(TIME_KEY, micros // 1_000_000, micros % 1_000_000)
    time = f'redis.call("LRANGE", "{TIME_KEY.decode()}", 0, -1)'
    source = SCRIPTS[name].source.replace('redis.call("TIME")', time)
    return server.eval(source, int(command[2]), *command[3:])


def plain(answer):
    """Return an answer without what redis-py makes of it: pairs of a hash as they came."""
    if isinstance(answer, dict):
        return sorted(answer.items())
    if isinstance(answer, list | tuple):
        flat = [plain(each) for each in answer]
        is_hash = flat and len(flat) % 2 == 0 and all(isinstance(each, bytes) for each in flat)
        return sorted(zip(flat[::2], flat[1::2], strict=True)) if is_hash else flat
    return answer
