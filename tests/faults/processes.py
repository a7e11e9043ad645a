"""Processes that a fault test may kill: forked from one that has everything imported.

A fork is up within milliseconds, where a new interpreter needs a second. Run as a program, this
file is the process that forks. What it forks ends with it, and it ends with its standard input.
"""

import asyncio
import ctypes
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from partq.broker.api.app import serve
from partq.cli.hosting.coordinate import coordinate
from partq.cli.hosting.processes import run_on_uvloop
from partq.logs import configure_logging
from partq.settings import BrokerSettings, CoordinatorSettings
from partq.store.fail_point import FailPoint
from tests.faults import member, moving_producer
from tests.faults.standstill import MARK, StandstillWatch

WAIT_S = 60.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class DieAt:
    """The step at which a process ends, without a word, once `armed` is there."""

    phase: str
    operation: str
    """A script's name."""
    armed: str
    """A file: the step counts from when it exists. Or a directory of steps at which Redis dies in
    the place of this process; see `aim`."""
    count: int = 1
    """At which call of it."""


def aim(armed, phase, operations, port):
    """Have the Redis at a port killed at the next of each operation, in processes with `armed`."""
    whole = armed.with_suffix(".whole")
    whole.mkdir()
    for number, operation in enumerate(operations):
        (whole / f"{phase}.{operation}.{number}").write_text(str(port))
    whole.rename(armed)


def kill_redis(port):
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"INFO server\r\n")
        said = connection.recv(65_536)
        os.kill(int(re.search(rb"process_id:(\d+)", said)[1]), signal.SIGKILL)


@dataclass(slots=True)
class ArmedFailPoint(FailPoint):
    """Counts calls only while a file is there; or kills Redis, where it is a directory of steps."""

    file: Path = Path()

    def hit(self, phase, operation):
        if not self.file.is_dir():
            if self.file.exists():
                FailPoint.hit(self, phase, operation)
            return
        for step in sorted(self.file.glob(f"{phase}.{operation}.*")):
            with suppress(FileNotFoundError):  # another process was faster
                taken = step.rename(step.with_name(f"taken-{step.name}"))
                kill_redis(int(taken.read_text()))
                taken.unlink()
            return


class Process:
    """A process of a test, held by a descriptor: a signal never reaches another one of its id."""

    def __init__(self, name, pid):
        self.name = name
        self._fd = os.pidfd_open(pid)

    def signal(self, number):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._fd, number)

    def freeze(self):
        self.signal(signal.SIGSTOP)

    def thaw(self):
        self.signal(signal.SIGCONT)

    async def kill(self):
        self.signal(signal.SIGKILL)
        await self.ended()

    async def ended(self):
        """Wait until it is gone."""
        loop = asyncio.get_running_loop()
        gone = loop.create_future()
        loop.add_reader(self._fd, lambda: gone.done() or gone.set_result(None))
        try:
            async with asyncio.timeout(WAIT_S):
                await gone
        except TimeoutError:
            raise AssertionError(f"{self.name} does not end") from None
        finally:
            loop.remove_reader(self._fd)

    def close(self):
        os.close(self._fd)


class Forker:
    """The process that forks the others; of one test session."""

    def __init__(self):
        # Started as a module: this file shares others with the tests.
        command = [sys.executable, "-m", "tests.faults.processes"]
        paths = os.pathsep.join(map(str, filter(None, sys.path)))
        self._program = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONPATH": paths},
        )

    def start(self, kind, name, *, log, env, args=(), die_at=None):
        """Fork a process; what it says goes to the file `log`.

        `kind`: `broker`, `coordinator`, `producer` or `consumer`.
        """
        order = {
            "kind": kind,
            "log": str(log),
            "env": env,
            "args": list(map(str, args)),
            "die_at": die_at and asdict(die_at),
        }
        self._program.stdin.write(json.dumps(order).encode() + b"\n")
        self._program.stdin.flush()
        return Process(name, int(self._program.stdout.readline()))

    def close(self):
        self._program.stdin.close()
        self._program.stdout.close()
        self._program.wait(WAIT_S)


# ---- the program --------------------------------------------------------------------------------


def main():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    for line in sys.stdin:
        child = os.fork()
        if not child:
            become(json.loads(line))
        print(child, flush=True)  # noqa: T201 - the answer


def become(order):
    """Be the process that was ordered, and end with it."""
    status = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        for number, source in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
            os.dup2(source, number)
        os.environ.clear()
        os.environ.update(order["env"])
        run(order)
        status = 0
    except BaseException:  # noqa: BLE001 - it is told, and this process ends
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)  # what it was forked from must not continue in it


def run(order):
    configure_logging("info")
    StandstillWatch(lambda for_s: logging.warning("%s %.1f s", MARK, for_s)).start()
    die_at, point = order["die_at"], None
    if die_at is not None:
        file = Path(die_at["armed"])
        point = ArmedFailPoint(die_at["phase"], die_at["operation"], die_at["count"], file)
    match order["kind"]:
        case "broker":
            run_on_uvloop(serve(BrokerSettings.from_env(os.environ), fail_point=point))
        case "coordinator":
            run_on_uvloop(coordinate(CoordinatorSettings.from_env(os.environ), fail_point=point))
        case "producer":
            asyncio.run(moving_producer.produce(*order["args"]))
        case "consumer":
            asyncio.run(member.consume(*order["args"]))


if __name__ == "__main__":
    main()
