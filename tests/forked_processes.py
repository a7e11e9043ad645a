"""Brokers and coordinators of tests, forked from a process that has imported them.

Starting one takes a second of CPU, nearly all of it for imports, and the tests start hundreds. So
the process of the tests starts one server (this file, as a program), which imports once what they
run, and forks for each. What a test sees is the same: a process with its environment and its log
and a session of its own, which signals reach, and which dies with the process of the tests.
"""

import asyncio
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import IO, Any

from partq.embedded.child import Child

STARTED = (sys.executable, "-m", "partq.cli.main")
"""How the commands begin that are forked; others are executed."""
MAX_REQUEST_BYTES = 128 * 1024


class ForkedProcess:
    """What `Child` uses of `asyncio.subprocess.Process`."""

    def __init__(self, pid: int, said: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._said = said
        self._ended = asyncio.ensure_future(self._follow())

    async def _follow(self) -> None:
        with self._said:
            status = await asyncio.get_running_loop().sock_recv(self._said, 64)
        self.returncode = int(status) if status else -signal.SIGKILL

    async def wait(self) -> int:
        """Wait for its end, and return its status: negative for the signal that ended it."""
        await asyncio.shield(self._ended)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal; one that has ended gets none."""
        if self.returncode is None:
            os.kill(self.pid, number)


class ForkServer:
    """The process that forks, started when it is first asked."""

    def __init__(self) -> None:
        self.is_used = True
        """Whether it forks; else all is executed. May be set at any time."""
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        self.environ: dict[str, str] = {}

    def forks(self, command: tuple[str, ...], env: Mapping[str, str]) -> bool:
        """Say whether a command can be forked: it is one of ours, in this environment."""
        if not self.is_used or command[: len(STARTED)] != STARTED:
            return False
        with self._lock:
            self._start()
        return _inherited(self.environ) == _inherited(env)

    async def fork(
        self, arguments: tuple[str, ...], env: Mapping[str, str], log_file: IO[bytes]
    ) -> ForkedProcess:
        """Return a new process that runs `partq` with these arguments."""
        assert self._requests is not None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        request = json.dumps({"arguments": arguments, "env": dict(env)}).encode()
        with theirs:
            socket.send_fds(self._requests, [request], [log_file.fileno(), theirs.fileno()])
        pid = await asyncio.get_running_loop().sock_recv(ours, 64)
        if not pid:
            ours.close()
            raise OSError("the server that forks processes for tests has ended")
        return ForkedProcess(int(pid), ours)

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.stop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                # Without -P all folders of the tests would be packages. It is not tethered, for the
                # thread that starts it may end: it ends when its socket is closed.
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                env=self.environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._requests = ours

    def stop(self) -> None:
        """End the server, and with it what it has forked."""
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


SERVER = ForkServer()


def fork_children() -> None:
    """Have each `Child` of this process that runs `partq` forked from now on, on Linux."""
    if sys.platform != "linux":
        return
    # As it is before any test: the first that asks may have changed it for itself.
    SERVER.environ = dict(os.environ)
    execute = Child._execute

    async def forked(self: Child, log_file: IO[bytes]) -> Any:
        if not SERVER.forks(self._command, self._env):
            return await execute(self, log_file)
        return await SERVER.fork(self._command[len(STARTED) :], self._env, log_file)

    Child._execute = forked  # type: ignore[method-assign]


_NOT_INHERITED = ("JAVA_", "PARTQ_", "PYSPARK_", "PYTEST_", "SPARK_")
"""How the variables begin that say nothing to an interpreter that starts: they may differ."""


def _inherited(env: Mapping[str, str]) -> dict[str, str]:
    """Return what must be as it was when the server started: it is not read again."""
    return {name: env[name] for name in env if not name.startswith(_NOT_INHERITED)}


def serve(requests: socket.socket) -> None:
    """Fork for each request until the last one who could ask has gone."""
    _import_all()
    woken, wakes = socket.socketpair()
    for each in (woken, wakes):
        each.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes.fileno())
    running: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        for each in (requests, woken):
            selector.register(each, selectors.EVENT_READ)
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if woken in ready:
                woken.recv(4096)
                _tell_ended(running)
            if requests in ready:
                request, fds, _, _ = socket.recv_fds(requests, MAX_REQUEST_BYTES, 2)
                if not request:
                    return
                pid = os.fork()
                if not pid:
                    _become(json.loads(request), *fds)
                os.close(fds[0])
                running[pid] = socket.socket(fileno=fds[1])


def _import_all() -> None:
    """Import what the commands import when they run."""
    import gc

    import partq.broker.api.app
    import partq.cli.commands
    import partq.cli.hosting.coordinate
    import partq.cli.hosting.processes  # noqa: F401

    with suppress(ModuleNotFoundError):
        import uvloop  # noqa: F401
    gc.collect()
    gc.freeze()


def _tell_ended(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with running.pop(pid) as said, suppress(OSError):
            said.send(b"%d" % os.waitstatus_to_exitcode(status))


def _become(request: dict[str, Any], log_file: int, said: int) -> None:
    """Run the command in this process, which was just forked, and never return."""
    import ctypes
    import runpy

    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG, as `tether` does
        for number in (1, 2):
            os.dup2(log_file, number)
        os.write(said, b"%d" % os.getpid())
        os.closerange(3, 1024)
        os.environ.clear()
        os.environ.update(request["env"])
        sys.argv = ["partq", *request["arguments"]]
        runpy.run_module("partq.cli.main", run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001  # as the interpreter would: the traceback, and status 1
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as asked:
        serve(asked)
