"""What is known of members that are local processes, without pods: the address of a caller."""

import ipaddress
from collections.abc import Collection, Mapping

from partq.coordinator.ports import BindRefusal
from partq.core.group.observation import MemberFact
from partq.core.model import MemberId


class LocalProcesses:
    """The coordinator's view of members on this machine, which have no pods.

    The broker has checked the token of the caller. A flow that says `Leave` is leaving; a flow
    that is lost may come back until the rebalance delay is over.
    """

    def facts(
        self, group: str, members: Collection[MemberId], leaving: Collection[MemberId]
    ) -> Mapping[MemberId, MemberFact]:
        """Return nothing: processes are not watched."""
        return {}

    def priorities(self, group: str, members: Collection[MemberId]) -> Mapping[str, int]:
        """Return nothing: the members' words count."""
        return {}

    def time_left_ms(self, group: str, member: MemberId) -> None:
        """Return nothing: nobody ends a process from outside and says until when."""

    def refusal(self, group: str, member: MemberId, address: str) -> BindRefusal | None:
        """Refuse callers from other machines."""
        try:
            is_local = ipaddress.ip_address(address).is_loopback
        except ValueError:
            is_local = False
        if is_local:
            return None
        text = f"member {member} asks from {address}; only this machine's processes may"
        return BindRefusal(text, is_final=True)
