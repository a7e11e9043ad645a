"""Calls to the API server as a test needs them: JSON in, JSON out."""

import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Body = dict[str, Any]


class ApiError(Exception):
    """The API server has refused a call."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


_PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "Service": "/api/v1/namespaces/{}/services",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "Event": "/apis/events.k8s.io/v1/namespaces/{}/events",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "PodDisruptionBudget": "/apis/policy/v1beta1/namespaces/{}/poddisruptionbudgets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "PartitionedQueue": "/apis/partq.dev/v1alpha1/namespaces/{}/partitionedqueues",
    "ConsumerGroup": "/apis/partq.dev/v1alpha1/namespaces/{}/consumergroups",
}


class Kube:
    """Calls to the API, over one connection that stays open."""

    TIMEOUT_S = 10.0

    def __init__(self, url: str, token: str, ca_file: Path) -> None:
        self._token = token
        self._connection = http.client.HTTPSConnection(
            url.removeprefix("https://"),
            timeout=self.TIMEOUT_S,
            context=ssl.create_default_context(cafile=ca_file),
        )

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        *,
        accept: str = "application/json",
    ) -> dict[str, Any]:
        """Send a request.

        Raises:
            ApiError: it was refused.
        """
        headers = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": content_type,
            "Accept": accept,
        }
        text = json.dumps(body) if body is not None else None
        try:
            status, answer = self._send(method, path, text, headers)
        except (ConnectionError, ssl.SSLError, http.client.HTTPException):
            # The server was restarted since the last call: once more, on a new connection.
            self.close()
            status, answer = self._send(method, path, text, headers)
        found: dict[str, Any]
        try:
            found = json.loads(answer)
        except ValueError:
            found = {"message": answer.decode(errors="replace")}
        if status >= 400:
            raise ApiError(status, found["message"])
        return found

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        self._connection.close()

    def _send(
        self, method: str, path: str, text: str | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        self._connection.request(method, path, text, dict(headers))
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        """Return an object; None: it is not there."""
        try:
            return self.call("GET", _path(kind, namespace, name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind: str, namespace: str | None) -> list[dict[str, Any]]:
        """Return every object of a kind."""
        items: list[dict[str, Any]] = self.call("GET", _path(kind, namespace))["items"]
        return items

    def create(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Make an object."""
        return self.call("POST", _path(body["kind"], body["metadata"].get("namespace")), body)

    def patch(
        self,
        kind: str,
        namespace: str,
        name: str,
        changes: Mapping[str, Any],
        *,
        part: str = "",
    ) -> dict[str, Any]:
        """Change the fields that `changes` names; `part`: of a subresource, such as `status`."""
        path = _path(kind, namespace, name) + (f"/{part}" if part else "")
        return self.call("PATCH", path, changes, "application/merge-patch+json")

    def delete(
        self, kind: str, namespace: str | None, name: str, *, grace_s: int | None = None
    ) -> None:
        """Delete an object; one that is gone is fine."""
        body = {} if grace_s is None else {"gracePeriodSeconds": grace_s}
        try:
            self.call("DELETE", _path(kind, namespace, name), body)
        except ApiError as error:
            if error.status != 404:
                raise


def _path(kind: str, namespace: str | None, name: str = "") -> str:
    path = _PATHS[kind].format(namespace)
    return f"{path}/{name}" if name else path
