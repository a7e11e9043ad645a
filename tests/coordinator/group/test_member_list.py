"""Who is listed when it asks to be let in."""

import logging
from types import SimpleNamespace

from partq.coordinator.group import member_list
from partq.coordinator.group.member_list import MemberList


class Members:
    """A store of members that lists who is to be listed."""

    def __init__(self):
        self.members = {}

    async def read(self, group):
        return self

    async def list_member(self, group, member, address):
        self.members[member] = address


async def test_the_list_has_a_bound_and_those_on_it_come_back(monkeypatch, caplog):
    monkeypatch.setattr(member_list, "MAX_LISTED", 2)
    caplog.set_level(logging.WARNING)
    store, member_processes = Members(), SimpleNamespace(refusal=lambda *_: None)
    admitted = MemberList("workers", store, member_processes, clock=lambda: 0.0)
    for name in ("a", "b", "c"):
        await admitted.admit(name, "10.0.0.1")
    assert store.members.keys() == {"a", "b"}
    assert "member c is not listed, as 2 others are" in caplog.text
    await admitted.admit("a", "10.0.0.2")
    assert store.members == {"a": "10.0.0.2", "b": "10.0.0.1"}
