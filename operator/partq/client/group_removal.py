"""The end of a group whose last consumer unsubscribes: who may do it, and doing it."""

import asyncio

from partq.client.transport.session import Session
from partq.errors import ConflictError, UnavailableError, UnknownGroupError
from partq.excerpts import some_of
from partq.path_names import quoted
from partq.wire.calls.answers import UNSET, UnsetType
from partq.wire.calls.group.removal import RemoveAnswer, RemoveBody
from partq.wire.calls.state import Picture

RETRY_S = 0.1
"""How long until brokers that still know a flow of the member are asked again."""


class GroupRemoval:
    """Removes a group once its last member has left.

    Args:
        session: open, with a token of the role `admin`.
        group: its name.
        member: the one that unsubscribes.
    """

    def __init__(self, session: Session, group: str, member: str) -> None:
        self._session = session
        self._group = group
        self._member = member
        self._path = f"/groups/{quoted(group, 'group')}"
        self._born: int | UnsetType = UNSET
        """Of the group that was looked at first; UNSET: no broker has said it."""

    async def check(self) -> None:
        """Look whether it would be refused; nothing is changed.

        Raises:
            ForbiddenError, UnauthorizedError: the token is not one of the role `admin`.
            ConflictError: other members are connected, or the group belongs to a resource.
            UnknownGroupError: it was removed, and may have been created again since.
            UnavailableError: no broker answers.
        """
        snapshot = await self._session.ask("GET", f"{self._path}/picture", Picture)
        if self._born is UNSET:
            self._born = snapshot.born
        if snapshot.born not in (UNSET, self._born):
            raise UnknownGroupError(
                f"group {self._group}: got the one created at {snapshot.born}, expected the one "
                f"of {self._born}, which was removed; to remove this one, unsubscribe there"
            )
        if snapshot.group_spec.get("uid") is not None:
            raise ConflictError(
                f"group {self._group}: it belongs to a ConsumerGroup on Kubernetes, and a consumer "
                "cannot remove it; delete that one in the queue's namespace: "
                f"kubectl delete consumergroup {self._group}"
            )
        if others := self._others(snapshot):
            raise ConflictError(
                f"group {self._group}: also connected: {some_of(others)}; only the last consumer "
                "can unsubscribe: close the others first"
            )

    async def remove(self, timeout_s: float) -> None:
        """Remove the group, which the member has left; it is repeated until brokers know that.

        Raises:
            ConflictError: another member has come; nothing was removed.
            UnavailableError, StoreUnavailableError: not all have answered within `timeout_s`; a
                repeat, as by `partq groups remove`, does the rest.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + timeout_s
        while True:
            try:
                body = RemoveBody(born=self._born)
                await self._session.ask("POST", f"{self._path}/remove", RemoveAnswer, body)
                return
            except UnknownGroupError:
                return
            except (ConflictError, UnavailableError):
                if clock() >= until:
                    raise
            await asyncio.sleep(RETRY_S)
            try:
                await self.check()
            except UnknownGroupError:
                return
            except UnavailableError:
                pass

    def _others(self, snapshot: Picture) -> list[str]:
        flows = (
            flow
            for answer in snapshot.brokers.values()
            if answer.state is not UNSET
            for flow in answer.state.flows
        )
        found = {flow.member for flow in flows if flow.group == self._group}
        return sorted(found - {self._member})
