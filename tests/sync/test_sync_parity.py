"""The blocking classes have each method of the asynchronous ones, or a reason why not."""

import re
from pathlib import Path

import pytest

import partq
from partq import sync

CLIENT = (Path(__file__).parents[2] / "docs" / "client.md").read_text(encoding="utf-8")
SECTION = CLIENT.partition("\n## Without asyncio\n")[2].partition("\n## ")[0]

MISSING = {
    "Consumer": {
        "seek": "moves the cursors of partitions that may be handed over between two calls; the "
        "safe place for it is a coroutine `on_assigned`, and a callback here may not block",
        "unsubscribe": "for the last consumer of a group; `partq groups remove` does the same",
        "ack_nowait": "a call waits for a change of threads in any case; `ack` does not wait for "
        "Redis unless it is `confirmed`",
    },
    "LockedSession": {
        "ack_cumulative": "refused in groups of the type Session",
        "ack_nowait": "as of `Consumer`",
    },
    "Producer": {},
    "QueuesConsumer": {
        "ack_nowait": "as of `Consumer`",
    },
    "Reader": {},
    "SessionConsumer": {},
    "Transaction": {},
}
"""Methods that applications use, with the reason. A new one is built, or listed here."""
INTERNAL = {
    "Consumer": {
        "has_ended",
        "leave_on_signals",
        "may_put_back",
        "share_wake",
        "put_back",
        "take_ready",
    },
    "LockedSession": {"assigned", "changes", "end", "ended", "put_back"},
    "Producer": set[str](),
    "QueuesConsumer": {"has_ended", "may_put_back", "put_back"},
    "Reader": {"read_next", "put_back"},
    "SessionConsumer": {
        "check",
        "ended",
        "forget",
        "give_back",
        "hurry_layout",
        "is_leaving",
        "lost",
        "reaccept",
        "report",
        "stop",
        "unlock",
        "wake",
    },
    "Transaction": set[str](),
}
"""Public for other modules of the client only."""
MISSING_CLASSES = {
    "AuditReader": "for tools that read the whole audit record, such as those of `partq pipeline`",
    "Browser": "for people who look; `partq browse` shows the same",
    "ClientAssignedConsumer": "its application runs a loop beside the messages",
    "LogReader": "for connectors",
}


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize("name", sync.__all__)
def test_a_method_is_there_or_has_a_reason(name):
    missing = public(getattr(partq, name)) - public(getattr(sync, name)) - INTERNAL[name]
    assert missing == set(MISSING[name]), "build it in partq.sync, or list it with its reason"


def test_a_class_is_there_or_has_a_reason():
    clients = {name for name in partq.__all__ if hasattr(getattr(partq, name), "__aenter__")}
    assert clients - set(sync.__all__) == set(MISSING_CLASSES)


@pytest.mark.parametrize("name", sync.__all__)
def test_the_document_names_what_is_there_and_what_is_missing(name):
    named = set(re.findall(r"`(\w+)`", SECTION))
    assert {*public(getattr(sync, name)), *MISSING[name], *MISSING_CLASSES} <= named
