"""Commands of partq that run beside a test."""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

PARTQ = (sys.executable, "-m", "partq.cli.main")


@contextmanager
def started(
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    timeout_s: float,
    directory: Path | None = None,
) -> Iterator[subprocess.Popen[str]]:
    """Run a command that ends with the block, or after the time-out."""
    with subprocess.Popen(
        [*PARTQ, *arguments],
        cwd=directory,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        too_late = Timer(timeout_s, process.kill)
        too_late.start()
        try:
            yield process
        finally:
            too_late.cancel()
            process.kill()
