"""The machine that the cluster runs on: separate network, mount and process namespaces.

Nothing in it reaches the host's network, none of its mounts is seen outside, and it ends as a
whole: when its first process is killed, the kernel ends every other process in it, pods included,
and with the last process its network and its mounts are gone. So it leaves nothing behind, however
it ended, but its folders of control groups, which `stop` removes.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from e2e.cluster.commands import ClusterError, run, wait_for

# The machine's first process. It has nothing to do but to be there, and to let the kernel collect
# the processes whose parents ended.
_INIT = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nwhile True: signal.pause()"
_SETUP = """
set -eu
mount --make-rshared /
mount -t tmpfs -o mode=0755 tmpfs /run
mkdir -p /run/netns "$1/lib" "$1/logs"
mount --bind "$1/lib" /var/lib
mount --bind "$1/logs" /var/log
echo "nameserver $2" >"$1/resolv.conf"
# The host's name server is out of reach: a query would wait. The file may be a link to /run.
[ ! -e /etc/resolv.conf ] || mount --bind "$1/resolv.conf" /etc/resolv.conf
# Beside version 1 of control groups runc would use this too, where the kubelet never cleans up.
! mountpoint --quiet /sys/fs/cgroup/unified || umount /sys/fs/cgroup/unified
ip link set lo up
ip link add node0 type bridge
ip address add "$2/24" dev node0
ip link set node0 up
ip route add default dev node0
ip route add unreachable 169.254.0.0/16 # the kubelet asks clouds for their metadata, and would wait
echo 1 >/proc/sys/net/ipv4/ip_forward
"""
_HIDDEN = ("/run", "/var/run", "/var/lib", "/var/log")
"""Folders of the host that the machine has its own of."""

_OPTIONS = {
    "net": ("--net", "net"),
    "mnt": ("--mount", "mnt"),
    "pid": ("--pid", "pid_for_children"),
}
"""nsenter's option for a namespace, and its file under /proc/PID/ns of the process that made it."""

_STOP_TIMEOUT_S = 60.0


class Machine:
    """The namespaces and what runs in them; recorded in `folder`, where any process finds them."""

    def __init__(self, folder: Path, *, cgroup: str) -> None:
        self._folder = folder
        self._record = folder / "machine.json"
        self._cgroup = cgroup
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, address: str) -> None:
        """Make the namespaces, a network with `address` on it, and the control groups.

        The name server is expected at `address` too, as `resolv.conf` in the folder says.

        Raises:
            ClusterError: the kernel or a missing program refuses.
        """
        for hidden in _HIDDEN:
            if self._folder.is_relative_to(hidden):
                raise ClusterError(f"{self._folder}: choose a folder that is not below {hidden}")
        namespaces = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._process = process = subprocess.Popen(
            ["unshare", *namespaces, "--propagation", "private", sys.executable, "-c", _INIT],  # noqa: S607 - unshare is where the PATH has it
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        record = {"pid": process.pid, "started": _started(process.pid)}
        partial = self._record.with_suffix(".partial")
        partial.write_text(json.dumps(record))
        partial.rename(self._record)  # all of it or nothing, if this process is killed now
        wait_for(
            "namespaces of the machine",
            lambda: _first_of(process.pid) or not _started(process.pid),
            timeout_s=10,
            every_s=0.02,
        )
        if not self.is_running():
            raise ClusterError("unshare failed: no separate namespaces here; root is needed")
        setup = ["sh", "-c", _SETUP, "setup", str(self._folder), address]
        run(self.enter(setup), timeout_s=30)
        for parent in _cgroup_roots():
            _make_cgroup(parent / self._cgroup)

    def is_running(self) -> bool:
        """Say whether the recorded machine runs."""
        return self._pid() is not None

    def enter(
        self, argv: Sequence[str], *, namespaces: Sequence[str] = ("net", "mnt", "pid")
    ) -> list[str]:
        """Return a command that runs `argv` in the machine, or just in some of its namespaces.

        Raises:
            ClusterError: the machine does not run.
        """
        pid = self._pid()
        if pid is None:
            raise ClusterError(f"no cluster runs in {self._folder}; start one with `up`")
        inside = [f"{_OPTIONS[name][0]}=/proc/{pid}/ns/{_OPTIONS[name][1]}" for name in namespaces]
        return ["nsenter", *inside, "--", *argv]

    def start_process(
        self, name: str, argv: Sequence[str], *, env: Mapping[str, str], sees_host: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start a process of the machine that ends with it; its output goes to a log of its name.

        Args:
            name: names the log.
            argv: the program, by its path, and its arguments.
            env: variables beside those of this process.
            sees_host: it has the mounts of the host, not those of the machine.
        """
        namespaces = ("net", "pid") if sees_host else ("net", "mnt", "pid")
        log = self._folder / "logs" / f"{name}.log"
        log.parent.mkdir(exist_ok=True)
        with log.open("ab") as output:
            return subprocess.Popen(
                self.enter(argv, namespaces=namespaces),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
                env={**os.environ, **env},
            )

    def stop(self) -> None:
        """End every process of the machine and remove its control groups. Repeatable.

        Raises:
            ClusterError: a process did not end; it is the kernel that waits for something.
        """
        pid = self._pid()
        if pid is not None:
            first = _first_of(pid)
            os.kill(first or pid, signal.SIGKILL)
            # unshare ends after the first process, and that after all others.
            wait_for("end of the machine", lambda: not self._pid(), timeout_s=_STOP_TIMEOUT_S)
        if self._process is not None:
            self._process.wait(timeout=1)
            self._process = None
        for parent in _cgroup_roots():
            _remove_cgroup(parent / self._cgroup)
        self._record.unlink(missing_ok=True)

    def _pid(self) -> int | None:
        """Return the process that holds the namespaces; None if it is not, or no longer, there."""
        try:
            record = json.loads(self._record.read_text())
        except FileNotFoundError:
            return None
        pid = int(record["pid"])
        # Process ids are used again: the same id with another start is somebody else's.
        return pid if record["started"] and _started(pid) == record["started"] else None


def _started(pid: int) -> str:
    """Return when a process started, in clock ticks since boot; empty if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _first_of(pid: int) -> int | None:
    """Return the first process of the namespace that `unshare`, running as `pid`, has made."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return None
    return int(children[0]) if children else None


def _cgroup_roots() -> list[Path]:
    """Return the mounted hierarchies of control groups, each once."""
    roots: dict[Path, None] = {}
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split(" ")
        if kind in ("cgroup", "cgroup2") and point.startswith("/sys/fs/cgroup"):
            roots[Path(point).resolve()] = None
    return list(roots)


def _make_cgroup(group: Path) -> None:
    group.mkdir(exist_ok=True)
    # A new group of version 1 has no processors and no memory nodes until it is given some.
    for name in ("cpuset.cpus", "cpuset.mems"):
        own, parents = group / name, group.parent / name
        if own.exists() and parents.exists() and not own.read_text().strip():
            own.write_text(parents.read_text())


def _remove_cgroup(group: Path) -> None:
    """Remove a group and those below it, for which the kernel may need a moment."""
    if not group.exists():
        return
    for folder, _, _ in os.walk(group, topdown=False):
        wait_for(f"removal of {folder}", partial(_rmdir, folder), timeout_s=10)


def _rmdir(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
