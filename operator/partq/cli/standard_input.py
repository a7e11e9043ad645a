"""Standard input, which a process may have been started without."""

import sys

from partq.errors import SettingsError


def is_terminal() -> bool:
    """Say whether somebody can be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


def check_open(instead: str) -> None:
    """Check that there is something to read from; `instead`: what a person can do without it.

    Raises:
        SettingsError: it is closed. Its descriptor may be a connection of ours by now.
    """
    if sys.stdin is None:
        raise SettingsError(f"standard input: it is closed; {instead}")
