"""The name of a member in its group, and where brokers describe it."""

import os
import secrets
import socket

from partq.client.arguments import check_path_argument
from partq.errors import SettingsError
from partq.excerpts import excerpt
from partq.path_names import EXPECTED, is_path_name, quoted

MAX_MEMBER_CHARS = 253


def member_name(given: str | None) -> str:
    """Return the name that was given, else the environment's PARTQ_MEMBER, else a made-up one.

    Raises:
        SettingsError: it is not a text, empty, too long, or has what cannot stand in a path.
    """
    if given is not None:
        check_path_argument("member", given)
    name = given or os.environ.get("PARTQ_MEMBER") or _made_up()
    if len(name) > MAX_MEMBER_CHARS or not is_path_name(name):
        raise SettingsError(
            f"member {excerpt(name)!r}: expected 1 to {MAX_MEMBER_CHARS} {EXPECTED}"
        )
    return name


def _made_up() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"[-MAX_MEMBER_CHARS:]


def member_path(group: str, member: str) -> str:
    """Return where a broker describes a member, under the queue's path."""
    return f"/groups/{quoted(group, 'group')}/members/{quoted(member, 'member')}"
