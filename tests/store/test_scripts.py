"""What holds of the text of every Lua script, and of what it repeats of Python."""

import re

import pytest

from partq.core.dead_letters import PRODUCER_PREFIX, DeadLetterReason
from partq.core.producer_series import is_series
from partq.store.lua import load_scripts
from partq.wire import audit, batch

SCRIPTS = load_scripts((7,))
BOUNDED = {
    "append_batches": "fields",  # of one entry
    "add_event": "ARGV, 2",  # of one event, whose fields the code names
    "unlink_keys": "KEYS",  # UNLINK_COUNT
    "erase_partition": "KEYS, first",  # MAX_ERASED
    "erase_group": "KEYS",  # of one group
}
"""What is unpacked beside the fixed fields of a hash, and why it is little."""


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_only_what_is_bounded_is_unpacked(name):
    """Lua refuses to unpack more than about 8,000 values, and what it has written by then stays."""
    unpacked = re.findall(r"\bunpack\((?!redis\.call\(\"HMGET\")([^()]*)", SCRIPTS[name].source)
    assert unpacked == ([BOUNDED[name]] if name in BOUNDED else [])


@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_numbers_are_drawn_in_one_way(name):
    """Above the last one, and above Redis's time: one rule, which stands in one place."""
    text = SCRIPTS[name].source
    rules = re.findall(r"math\.max\([^\n]*\bnow_ms\b", text)
    assert rules == ['math.max(tonumber(last or "0") + 1, now_ms'] * ("draw_above(" in text)


def table(script, name):
    """Return what stands right of a local name, to the end of the table or the line."""
    pattern = rf"^local {name} = (\{{.*?\}}|[^\n]*)$"
    (found,) = re.findall(pattern, SCRIPTS[script].source, re.MULTILINE | re.DOTALL)
    return found


def test_the_reasons_of_dead_letters_are_those_of_python():
    pairs = re.findall(r'\["(\d+)"\] = "(\w+)"', table("add_dead_letters", "REASONS"))
    assert dict(pairs) == {str(int(reason)): reason.word for reason in DeadLetterReason}


def test_the_fields_of_an_audit_record_are_those_of_python():
    fields = re.findall(r'"(\w+)"', table("write_audit", "AUDIT_FIELDS"))
    assert fields == [name for name, _ in audit.FIELDS]


def test_the_kinds_of_audit_records_are_some_of_pythons():
    kinds = {
        kind for each in SCRIPTS.values() for kind in re.findall(r'kind = "(\w+)"', each.source)
    }
    assert {"publish", "dead_letter", "claim"} <= kinds <= set(audit.KINDS)


def test_what_an_append_knows_of_names_and_batches_is_as_in_python():
    assert int(table("append_batches", "HEADER_SIZE")) == batch.HEADER_SIZE
    assert table("append_batches", "SPARSE") == f'"{PRODUCER_PREFIX}"'
    (code,) = re.findall(r'"\\(\d+)"', table("append_batches", "SEPARATOR"))
    assert is_series(f"producer{chr(int(code))}digest")
