"""Run a command that the kernel kills when its parent dies: `tether.py PARENT_PID COMMAND...`.

Runs as a separate file, with nothing imported but the standard library, and becomes the command.
So no code runs between fork and exec of the parent, which may have threads. On systems without
such a signal the command runs all the same.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def tethered(*command: object) -> list[str]:
    """Return the command that runs `command` tied to this process."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *map(str, command)]


def main() -> None:
    """Become the command, tied to the parent."""
    parent = int(sys.argv[1])
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        # SIGKILL reaches a stopped process too; what it holds is stored or repeated anyway.
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(f"parent {parent} has died before {sys.argv[2]} was started")
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606  # no shell is wanted


if __name__ == "__main__":
    main()
