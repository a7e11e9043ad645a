"""The Lua scripts, one file per operation, as the server at hand wants them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib import resources
from types import MappingProxyType

FULL_MARK = "\n-- when full: passes\n"
"""The header line of scripts that must work on a full Redis: those that free, ack, renew or claim.
Those that make partitions and cursors, too, as a change of the partition count may free much."""

_SHEBANG = "#!lua flags=allow-oom\n"
# Older servers have no flags. They refuse a script's first write when it needs memory, and none
# after it: so a write comes first that needs none. It removes a field that no hash has. (KEYS[1]
# of these scripts is always a hash.)
_FREE_WRITE = 'redis.call("HDEL", KEYS[1], "")\n'


_PART_MARK = re.compile(r"^-- with: (\w+)$", re.MULTILINE)
"""The line by which a script asks for `parts/NAME.lua` before it."""


@dataclass(frozen=True, slots=True)
class Script:
    """One operation: its source, and the SHA-1 by which the server knows it."""

    name: str
    source: str
    sha: str


def load_scripts(server_version: tuple[int, ...]) -> Mapping[str, Script]:
    """Return every script by its name, prepared for a server of this version."""
    return _prepared(_SHEBANG if server_version >= (7,) else _FREE_WRITE)


@cache
def _prepared(head: str) -> Mapping[str, Script]:
    """Return the scripts with what a server wants before those that must work when it is full."""
    scripts = {}
    for name, text in _texts().items():
        source = head + text if FULL_MARK in text else text
        sha = sha1(source.encode(), usedforsecurity=False).hexdigest()
        scripts[name] = Script(name, source, sha)
    return MappingProxyType(scripts)


@cache
def _texts() -> Mapping[str, str]:
    """Return the text of every script by its name; read once, as each connection asks for it."""
    parts = _read("parts")
    return {
        name: "".join(parts[part] for part in _PART_MARK.findall(text)) + text
        for name, text in _read("scripts").items()
    }


def _read(folder: str) -> dict[str, str]:
    files = resources.files(__package__).joinpath(folder).iterdir()
    return {
        file.name.removesuffix(".lua"): file.read_text(encoding="utf-8")
        for file in files
        if file.name.endswith(".lua")
    }
