"""Brings a queue's objects in line, by server-side apply: the server changes what differs.

They are applied again when what they are made from has changed, and now and then against changes
by others. An object that belongs to another owner is never touched.
"""

import hashlib
import json
from collections.abc import Callable, Sequence

from partq.kube.api import KubeApi
from partq.kube.bodies import Body, Manifest
from partq.kube.errors import NameTakenError
from partq.kube.objects.broker_pods import KubeObject
from partq.kube.objects.credentials import is_owned

REPAIR_S = 60.0
"""How long another client's change of an object may last."""
_COUNTED = frozenset({"generation", "managedFields", "resourceVersion"})


class Applier:
    """Applies the objects of one queue."""

    def __init__(self, api: KubeApi, clock: Callable[[], float]) -> None:
        self._api = api
        self._clock = clock
        self._hash = ""
        self._applied_at = float("-inf")
        self._ours: set[str] = set()
        self._has_changed = False
        """Something was changed and not reported yet: a later object of the list failed."""

    async def apply(
        self, objects: Sequence[KubeObject], owner_uid: str, *, unwanted: Sequence[str] = ()
    ) -> bool:
        """Apply the objects if need be; return whether that has changed what is asked for.

        It has not when the operator before this one has applied the same.

        Args:
            objects: in the order in which they are applied.
            owner_uid: of the queue.
            unwanted: paths at which the queue must have no object; such objects are removed.

        Raises:
            NameTakenError: an object of the name belongs to another owner; those before it in the
                list are applied.
            KubernetesError: some are applied; a repeat does the rest.
        """
        text = json.dumps([[each.path, each.body] for each in objects], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        is_new = digest != self._hash
        if not is_new and self._clock() - self._applied_at < REPAIR_S:
            return False
        for path, body in objects:
            if path in self._ours:
                await self._api.apply(path, body)
                self._has_changed |= is_new and bool(self._hash)
            else:
                before = await self._found(path, str(body["kind"]), owner_uid)
                after = await self._api.apply(path, body)
                self._has_changed |= before is None or _content(before) != _content(after)
                self._ours.add(path)
        for path in unwanted:
            await self._remove(path, owner_uid)
        has_changed, self._has_changed = self._has_changed, False
        self._hash, self._applied_at = digest, self._clock()
        return has_changed

    async def _remove(self, path: str, owner_uid: str) -> None:
        found = await self._api.get(path)
        if found is not None and is_owned(found, owner_uid):
            await self._api.delete(path, found["metadata"]["uid"])
            self._ours.discard(path)
            self._has_changed = True

    async def _found(self, path: str, kind: str, owner_uid: str) -> Body | None:
        """Return the current object; None: it does not exist."""
        found = await self._api.get(path)
        if found is not None and not is_owned(found, owner_uid):
            name = f"{found['metadata']['namespace']}/{found['metadata']['name']}"
            raise NameTakenError(f"{kind} {name}: it belongs to another owner; rename or remove it")
        return found


def _content(body: Body) -> Manifest:
    """Return what people and controllers ask for in an object; not what the server counts."""
    metadata = {key: value for key, value in body["metadata"].items() if key not in _COUNTED}
    return {**{k: v for k, v in body.items() if k != "status"}, "metadata": metadata}
