"""Programs of their own process that use `partq.sync`."""

import subprocess
import sys

WAIT_S = 60.0


def output_of(program):
    """Wait for a program's end, and return what it has printed; one that does not end is killed."""
    try:
        return program.communicate(timeout=WAIT_S)[0]
    finally:
        program.kill()


def start_program(local, text):
    """Start a program that knows the broker; return its process."""
    head = (
        "import os, signal, sys\nfrom partq.sync import Consumer, Producer\n"
        f"url, produce, consume = {local.url!r}, "
        f"{local.tokens.produce!r}, {local.tokens.consume!r}\n"
    )
    return subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", head + text],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
