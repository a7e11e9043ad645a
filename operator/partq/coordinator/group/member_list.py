"""The recorded members of a group: which may bind, which are lost, which replace others."""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial

from partq.coordinator.group.queue_observation import QueueObservation
from partq.coordinator.group.refusals import Refusals
from partq.coordinator.ports import MemberProcesses, MemberStore
from partq.core.group.membership import GroupAssessment
from partq.core.group.moves import Move
from partq.core.group.observation import GroupObservation
from partq.core.group.records import MemberSnapshot
from partq.core.group.replacements import needless_replacements
from partq.core.model import MemberId

MAX_LISTED = 10_000
"""How many members of a group are listed; more are not let in."""

_log = logging.getLogger(__name__)


class MemberList:
    """Keeps the list of one group's members."""

    def __init__(
        self,
        group: str,
        members: MemberStore,
        member_processes: MemberProcesses,
        clock: Callable[[], float],
    ) -> None:
        self._group = group
        self._members = members
        self._member_processes = member_processes
        self._refusals = Refusals(clock)

    @property
    def refused(self) -> Mapping[MemberId, str]:
        """Return who has asked to bind for long enough and may not, with the reasons."""
        return self._refusals.lasting()

    async def write(
        self,
        observation: GroupObservation,
        assessment: GroupAssessment,
        read: MemberSnapshot,
        queue: QueueObservation,
    ) -> None:
        """Write down what a look has found.

        Raises:
            StoreUnavailableError: no answer; the next look finds the same.
        """
        group, members = self._group, self._members
        for member in assessment.to_mark:
            _log.info("group %s: member %s is lost", group, member)
        for member in assessment.to_unlist:
            _log.info("group %s: member %s is gone and no longer listed", group, member)
        unlisted = {
            flow.member: flow.address
            for state in queue.states.values()
            for flow in state.flows
            if flow.group == group and flow.member not in read.members
        }
        await asyncio.gather(
            *(members.mark_lost(group, member) for member in sorted(assessment.to_mark)),
            *(members.clear_lost(group, member) for member in sorted(assessment.to_clear)),
            *(members.unlist(group, member) for member in sorted(assessment.to_unlist)),
            *(
                members.unpair(group, member)
                for member in sorted(needless_replacements(observation, assessment))
            ),
            *(
                members.list_member(group, member, address)
                for member, address in unlisted.items()
                if self._member_processes.refusal(group, member, address) is None
            ),
            self._write_refusals(read),
        )

    async def _write_refusals(self, read: MemberSnapshot) -> None:
        """Let the brokers tell refused members why; also of those that are refused no more."""
        judge = partial(self._member_processes.refusal, self._group)
        refused = self._refusals.review(read.members.keys(), judge)
        new = {member: each for member, each in refused.items() if read.refused.get(member) != each}
        over = read.refused.keys() - refused.keys()
        if new or over:
            await self._members.write_refusals(self._group, new, over)

    async def pair(self, moves: Collection[Move], known: Mapping[MemberId, MemberId]) -> None:
        """Write down who takes over whole sets, before anything of them moves.

        Raises:
            StoreUnavailableError: no answer; then nothing may move.
        """
        replacements = {
            move.ownership.member: move.target
            for move in moves
            if move.is_inherited and move.ownership.member is not None and move.target is not None
        }
        new = {
            member: replacement
            for member, replacement in replacements.items()
            if known.get(member) != replacement
        }
        for member, replacement in new.items():
            _log.info("group %s: %s takes over all of %s", self._group, replacement, member)
        await asyncio.gather(
            *(
                self._members.pair(self._group, member, replacement)
                for member, replacement in new.items()
            )
        )

    async def admit(self, member: MemberId, address: str) -> None:
        """List a member that asks to bind, or note why it may not.

        Raises:
            StoreUnavailableError: no answer; it asks again.
        """
        refusal = self._member_processes.refusal(self._group, member, address)
        if refusal is not None:
            self._refusals.note(member, address, refusal)  # the next look writes it down
            return
        listed = (await self._members.read(self._group)).members
        if member not in listed and len(listed) >= MAX_LISTED:
            _log.warning(
                "group %s: member %s is not listed, as %d others are",
                *(self._group, member, MAX_LISTED),
            )
            return
        await self._members.list_member(self._group, member, address)
