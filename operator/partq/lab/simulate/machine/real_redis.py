"""A real redis-server beside the simulated one: both are asked the same, and must answer alike.

The history is that of the simulated one, so a seed means the same with and without it.
"""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from redis.connection import UnixDomainSocketConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from partq.embedded.redis_process import find_redis_server
from partq.embedded.tether import tethered
from partq.errors import SettingsError, UnavailableError
from partq.lab.simulate.machine.memory_redis import Args, CompiledScript, MemoryRedis, Value
from partq.store.lua import Script, load_scripts
from partq.store.pipelined_connection import Reply

START_TIMEOUT_S: Final = 15.0
ANSWER_TIMEOUT_S: Final = 10.0
"""Seconds that Redis may take to answer a call of the simulator."""
_POLL_S: Final = 0.01
_SETTINGS: Final = {
    "port": "0",
    "save": "",
    "appendonly": "no",
    # Replies without a defined order, and trims that are only about, are the same in both.
    "hash-max-ziplist-entries": "1000000",
    "hash-max-ziplist-value": "1000000000",
    "stream-node-max-entries": "100",
    "stream-node-max-bytes": "0",
}
_PRELUDE: Final = """
local simulated_time = {ARGV[#ARGV - 1], ARGV[#ARGV]}
ARGV[#ARGV] = nil
ARGV[#ARGV] = nil
local function next_id(key)
  local last = redis.call("XREVRANGE", key, "+", "-", "COUNT", 1)[1]
  local last_ms, number = string.match(last and last[1] or "0-0", "(%d+)-(%d+)")
  local now_ms = simulated_time[1] * 1000 + math.floor(simulated_time[2] / 1000)
  if now_ms > tonumber(last_ms) then
    return string.format("%.0f-0", now_ms)
  end
  return string.format("%s-%.0f", last_ms, number + 1)
end
"""
"""Time, and the ids that a stream makes of it, come from outside: the last two arguments."""


class DifferentAnswerError(Exception):
    """The two have not answered alike: the simulated Redis is wrong about something."""


class RealRedis:
    """A separate redis-server, on a socket that nobody else knows; it is emptied at will.

    Use it as a context manager: leaving it ends the server. `parent`: where its files go.
    """

    def __init__(self, parent: Path | None = None) -> None:
        self._dir = Path(tempfile.mkdtemp(prefix="partq-simulate-", dir=parent))
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: UnixDomainSocketConnection | None = None
        self._scripts: Mapping[str, Script] = {}
        self._loaded: dict[str, Any] = {}

    def __enter__(self) -> Self:
        """Start it.

        Raises:
            SettingsError: there is no redis-server, or it does not start.
        """
        path = self._dir / "redis.sock"
        # It ends with this process, which is killed when a run is cut off.
        redis = str(find_redis_server())
        command = tethered(redis, "--unixsocket", str(path), "--dir", str(self._dir))
        for name, value in _SETTINGS.items():
            command += (f"--{name}", value)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._connection = UnixDomainSocketConnection(  # type: ignore[no-untyped-call,abstract]  # it is not
            path=str(path), socket_timeout=ANSWER_TIMEOUT_S, protocol=2
        )
        try:
            self._wait_until_ready(self._connection)
            info = self.ask(b"INFO", b"server").decode()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        version = info.partition("redis_version:")[2].split()[0]
        self._scripts = load_scripts(tuple(int(part) for part in version.split(".")[:3]))
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.disconnect()  # type: ignore[no-untyped-call]  # as it is
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._dir, ignore_errors=True)

    @property
    def scripts_run(self) -> set[str]:
        """Which of the store's scripts it was asked for."""
        return set(self._loaded)

    def _wait_until_ready(self, connection: UnixDomainSocketConnection) -> None:
        until = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                connection.connect()  # type: ignore[no-untyped-call]  # as it is
            except RedisConnectionError as error:
                has_ended = self._process is None or self._process.poll() is not None
                if has_ended or time.monotonic() > until:
                    raise SettingsError(
                        f"redis-server: it does not answer within {START_TIMEOUT_S:g} s: {error}"
                    ) from error
                time.sleep(_POLL_S)
            else:
                return

    def ask(self, *command: bytes) -> Reply:
        """Return the answer to a command, as it came.

        Raises:
            ResponseError: the server refuses it.
            UnavailableError: it does not answer.
        """
        assert self._connection is not None  # noqa: S101  used inside of `with`
        try:
            self._connection.send_command(*command)  # type: ignore[no-untyped-call]  # as it is
            return self._connection.read_response(disable_decoding=True)
        except (RedisConnectionError, TimeoutError) as error:
            raise UnavailableError(f"redis-server: no answer to {command[0]!r}: {error}") from error

    def run(self, name: str, keys: Args, args: Args, now_s: float) -> Reply:
        """Run one of the store's scripts at a time that is given."""
        sha = self._loaded.get(name)
        if sha is None:
            first, _, rest = self._scripts[name].source.partition("\n")
            head, body = (first, rest) if first.startswith("#!") else ("", f"{first}\n{rest}")
            body = body.replace('redis.call("TIME")', "simulated_time")
            body = body.replace('"*"', "next_id(KEYS[1])")
            source = f"{head}{_PRELUDE}{body}"
            sha = self._loaded[name] = self.ask(b"SCRIPT", b"LOAD", source.encode())
        micros = round(now_s * 1_000_000)
        time_args = b"%d" % (micros // 1_000_000), b"%d" % (micros % 1_000_000)
        return self.ask(b"EVALSHA", sha, b"%d" % len(keys), *keys, *args, *time_args)


class ComparedRedis(MemoryRedis):
    """The simulated Redis, with a real one that is asked the same."""

    def __init__(self, real: RealRedis, now: Callable[[], float]) -> None:
        super().__init__(now)
        self._real = real
        self._is_in_script = False
        self._dumps: list[tuple[dict[bytes, Value], dict[bytes, bytes]]] = []
        """Copies of our keys, each with the real one's at that time."""
        real.ask(b"FLUSHALL")

    def command(self, name: bytes, args: Args) -> Reply:
        """Carry out a command on both.

        Raises:
            DifferentAnswerError: their answers differ.
        """
        answer = super().command(name, args)
        if not self._is_in_script and name != b"TIME":
            asked = [name, *args]
            if b"BLOCK" in asked:  # the simulated one blocks elsewhere
                at = asked.index(b"BLOCK")
                del asked[at : at + 2]
            self._compare(asked, answer, lambda: self._real.ask(*asked))
        return answer

    def run(self, script: CompiledScript, keys: Args, args: Args) -> Reply:
        """Run a script on both.

        Raises:
            DifferentAnswerError: their answers differ.
        """
        self._is_in_script = True
        try:
            answer = super().run(script, keys, args)
        finally:
            self._is_in_script = False
        asked = [script.name.encode(), *keys, *args]
        self._compare(asked, answer, lambda: self._real.run(script.name, keys, args, self._now()))
        return answer

    def copy(self) -> dict[bytes, Value]:
        """Return what our keys are now, and keep what the real one's are."""
        copied = super().copy()
        keys = self._real.ask(b"KEYS", b"*")
        self._dumps.append((copied, {key: self._real.ask(b"DUMP", key) for key in keys}))
        return copied

    def restore(self, kept: dict[bytes, Value], prefix: bytes = b"") -> None:
        """Go back to a copy, both of them."""
        super().restore(kept, prefix)
        dumped = next(dump for copied, dump in self._dumps if copied is kept)
        for key in self._real.ask(b"KEYS", b"*"):
            if key.startswith(prefix):
                self._real.ask(b"DEL", key)
        for key, data in dumped.items():
            if key.startswith(prefix):
                self._real.ask(b"RESTORE", key, b"0", data)

    def _compare(self, asked: list[bytes], answer: Reply, ask: Callable[[], Reply]) -> None:
        try:
            real = ask()
        except ResponseError as error:
            raise DifferentAnswerError(f"{asked}: a real one refuses: {error}") from error
        if real != answer:
            raise DifferentAnswerError(f"{asked}: a real one answers {real}, ours {answer}")
