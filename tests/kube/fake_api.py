"""The API server in memory, for the parts that call it one object at a time."""

from copy import deepcopy

from partq.kube.errors import KubernetesError


class FakeApi:
    """Objects by path; what is in `broken` has no answer, what is in `refused` gets that status."""

    def __init__(self):
        self.objects = {}
        self.calls = []
        self.broken = set()
        self.refused = {}
        self._version = 10

    async def get(self, path, **query):
        self._note("GET", path)
        return deepcopy(self.objects.get(path))

    async def create(self, path, body):
        self._note("POST", path)
        place = f"{path}/{body['metadata']['name']}"
        if place in self.objects:
            return None
        return self._put(place, body)

    async def replace(self, path, body):
        self._note("PUT", path)
        if not self._is_latest(path, body):
            return None
        return self._put(path, body)

    async def apply(self, path, body):
        self._note("APPLY", path)
        return self._put(path, body)

    async def merge(self, path, body):
        self._note("MERGE", path)
        if not self._is_latest(path, body):
            return None
        return self._put(path, _merged(self.objects[path], body))

    async def delete(self, path, uid):
        self._note("DELETE", path)
        if self.objects.get(path, {}).get("metadata", {}).get("uid") == uid:
            del self.objects[path]

    def _note(self, method, path):
        self.calls.append((method, path))
        if path in self.broken or "*" in self.broken:
            raise KubernetesError(f"{method} {path}: no answer")
        if status := self.refused.get(path):
            raise KubernetesError(f"{method} {path}: {status}: refused", status=status)

    def _is_latest(self, path, body):
        if path not in self.objects:
            return False
        version = body.get("metadata", {}).get("resourceVersion")
        return version in (None, self.objects[path]["metadata"]["resourceVersion"])

    def _put(self, path, body):
        self._version += 1
        before = self.objects.get(path, {}).get("metadata", {})
        kept = {"uid": before.get("uid", f"uid-{self._version}")}
        metadata = {**kept, **body["metadata"], "resourceVersion": str(self._version)}
        self.objects[path] = deepcopy({**body, "metadata": metadata})
        return deepcopy(self.objects[path])


def _merged(old, change):
    if not isinstance(change, dict) or not isinstance(old, dict):
        return change
    merged = {**old, **{k: _merged(old.get(k), v) for k, v in change.items()}}
    return {k: v for k, v in merged.items() if v is not None}
