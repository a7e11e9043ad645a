"""What holds of the text of every Lua script."""

import re

import pytest

from partq.store.lua import load_scripts

SCRIPTS = load_scripts((7,))
BOUNDED = {
    "append_batches": "fields",  # of one entry
    "add_event": "ARGV, 2",  # of one event, whose fields the code names
    "unlink_keys": "KEYS",  # UNLINK_COUNT, or the keys of one group
}
"""What is unpacked beside the fixed fields of a hash, and why it is little."""


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_only_what_is_bounded_is_unpacked(name):
    """Lua refuses to unpack more than about 8,000 values, and what it has written by then stays."""
    unpacked = re.findall(r"\bunpack\((?!redis\.call\(\"HMGET\")([^()]*)", SCRIPTS[name].source)
    assert unpacked == ([BOUNDED[name]] if name in BOUNDED else [])
