"""The members that asked to be let into a group and were not, each with the reason."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from partq.coordinator.ports import BindRefusal
from partq.core.group.records import RefusedJoin
from partq.core.model import MemberId

FORGET_S = 15.0
"""How long after its last request a refused member is forgotten; clients ask every few seconds."""
MAX_KNOWN_REFUSED = 100
"""How many are known of a group; of more, those that asked last."""


@dataclass(frozen=True, slots=True)
class _Asked:
    address: str
    refusal: BindRefusal
    since: float
    """When this reason was given first."""
    at: float
    """When the member asked last."""


class Refusals:
    """Knows the refused members of one group. Any clock in seconds will do."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._asked: dict[MemberId, _Asked] = {}

    def note(self, member: MemberId, address: str, refusal: BindRefusal) -> None:
        """Note that a member has asked just now, and why it is refused."""
        now, before = self._clock(), self._asked.pop(member, None)
        since = before.since if before is not None and before.refusal == refusal else now
        self._asked[member] = _Asked(address, refusal, since, now)
        if len(self._asked) > MAX_KNOWN_REFUSED:
            del self._asked[next(iter(self._asked))]

    def review(
        self,
        listed: Collection[MemberId],
        judge: Callable[[MemberId, str], BindRefusal | None],
    ) -> dict[MemberId, RefusedJoin]:
        """Forget who is listed, may come in now or asks no more; return the others.

        `judge`: what is said of a member that asks from an address.
        """
        now = self._clock()
        for member, asked in list(self._asked.items()):
            refusal = judge(member, asked.address)
            if member in listed or refusal is None or now - asked.at > FORGET_S:
                del self._asked[member]
            elif refusal != asked.refusal:
                self._asked[member] = _Asked(asked.address, refusal, now, asked.at)
        return {
            member: RefusedJoin(asked.address, asked.refusal.text, asked.refusal.is_final)
            for member, asked in self._asked.items()
        }

    def lasting(self) -> Mapping[MemberId, str]:
        """Return the refusals that people are told, which have lasted long enough."""
        now = self._clock()
        return {
            member: asked.refusal.text
            for member, asked in self._asked.items()
            if now - asked.since >= asked.refusal.told_after_s
        }
