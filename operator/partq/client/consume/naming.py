"""The name of a member in its group."""

import os
import secrets
import socket

from partq.client.arguments import check_texts
from partq.errors import SettingsError

MAX_MEMBER_CHARS = 253


def member_name(given: str | None) -> str:
    """Return the name that was given, else the environment's PARTQ_MEMBER, else a made-up one.

    Raises:
        SettingsError: it is no text, too long, or cannot be printed.
    """
    check_texts({"member": given})
    name = given or os.environ.get("PARTQ_MEMBER") or _made_up()
    if len(name) > MAX_MEMBER_CHARS or not name.isprintable():
        raise SettingsError(
            f"member {name[:40]!r}: expected 1 to {MAX_MEMBER_CHARS} printable characters"
        )
    return name


def _made_up() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"[-MAX_MEMBER_CHARS:]
