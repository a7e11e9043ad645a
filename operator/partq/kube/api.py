"""The calls to the API server: JSON in, JSON out, each with a time-out and our errors.

The generated classes of the client are not used: they cost more memory than the operator's own
state, and what is read and written here is JSON anyway. Its connection, credentials and their
renewal are.
"""

import asyncio
import json
import os
import re
from collections.abc import Mapping
from typing import Self, cast

import aiohttp
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.incluster_config import load_incluster_config
from kubernetes.aio.config.kube_config import load_kube_config

from partq.errors import SettingsError
from partq.excerpts import excerpt
from partq.kube.bodies import Body
from partq.kube.errors import KubernetesError
from partq.kube.names import MANAGER

TIMEOUT_S = 10.0
"""How long one call may take."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
MAX_SAID_CHARS = 500
"""Of the API server's words in an error."""
MAX_CONNECTIONS = 16


class KubeApi:
    """One per process. Open it with `KubeApi.open`, close it with `close`."""

    def __init__(self, configuration: Configuration) -> None:
        configuration.connection_pool_maxsize = MAX_CONNECTIONS
        self._client = ApiClient(configuration)
        self.call_count = 0
        """How many calls were made."""
        self.error_count = 0
        """How many had no answer, or a refusal."""

    @classmethod
    async def open(cls) -> Self:
        """Take the pod's service account, else KUBECONFIG or `~/.kube/config`.

        Raises:
            SettingsError: neither is there, or it cannot be read.
        """
        configuration = Configuration()
        try:
            if is_in_cluster(os.environ):
                load_incluster_config(configuration)  # type: ignore[no-untyped-call]  # as it is
            else:
                await load_kube_config(  # type: ignore[no-untyped-call]  # as it is
                    client_configuration=configuration, persist_config=False
                )
        except (ConfigException, OSError) as error:
            raise SettingsError(
                f"Kubernetes: {error}; run in a pod with a service account, or set KUBECONFIG"
            ) from error
        return cls(configuration)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()  # type: ignore[no-untyped-call]  # as it is

    async def get(self, path: str, **query: str) -> Body | None:
        """Return an object or a list; None: it is not there.

        Raises:
            KubernetesError: as in every call: refused, or no answer.
        """
        return await self._call("GET", path, query, missing_is_none=True)

    async def create(self, path: str, body: Mapping[str, object]) -> Body | None:
        """Make an object; None: one of this name is there."""
        try:
            return await self._call("POST", path, {"fieldManager": MANAGER}, body)
        except KubernetesError as error:
            if error.status == 409:
                return None
            raise

    async def replace(self, path: str, body: Mapping[str, object]) -> Body | None:
        """Replace an object; None: it is gone, or has changed since it was read."""
        try:
            return await self._call("PUT", path, {"fieldManager": MANAGER}, body)
        except KubernetesError as error:
            if error.status in (404, 409):
                return None
            raise

    async def apply(self, path: str, body: Mapping[str, object]) -> Body:
        """Make an object as `body` says; fields that it does not name stay others'."""
        query = {"fieldManager": MANAGER, "force": "true"}
        answer = await self._call("PATCH", path, query, body, "application/apply-patch+yaml")
        return cast(Body, answer or {})

    async def merge(self, path: str, body: Mapping[str, object]) -> Body | None:
        """Change the fields that `body` names; None: the object is gone or has changed."""
        content = "application/merge-patch+json"
        try:
            return await self._call(
                "PATCH", path, {"fieldManager": MANAGER}, body, content, missing_is_none=True
            )
        except KubernetesError as error:
            if error.status == 409:
                return None
            raise

    async def delete(self, path: str, uid: str) -> None:
        """Delete the object with this uid; one that is gone, or another of its name, is fine."""
        body = {"propagationPolicy": "Background", "preconditions": {"uid": uid}}
        try:
            await self._call("DELETE", path, {}, body, missing_is_none=True)
        except KubernetesError as error:
            if error.status != 409:
                raise

    async def version(self) -> tuple[int, int]:
        """Return the server's version, such as (1, 20)."""
        found: Mapping[str, object] = await self._call("GET", "/version", {}) or {}
        digits = [re.match(r"\d+", str(found.get(part, ""))) for part in ("major", "minor")]
        major, minor = (int(each.group()) if each else 0 for each in digits)
        return major, minor

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, object] | None = None,
        content_type: str = "application/json",
        *,
        missing_is_none: bool = False,
    ) -> Body | None:
        self.call_count += 1
        where = f"{method} {path}"
        try:
            async with asyncio.timeout(TIMEOUT_S):
                status, text = await self._send(method, path, query, body, content_type)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self.error_count += 1
            raise KubernetesError(
                f"{where}: no answer from the API server: {type(error).__name__} {error}".rstrip()
            ) from error
        if status == 404 and missing_is_none:
            return None
        if len(text) > MAX_ANSWER_BYTES:
            raise KubernetesError(f"{where}: the answer has {len(text)} bytes", status=status)
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError) as error:
            answer = {"message": excerpt(text[:MAX_SAID_CHARS].decode(errors="replace"))}
            if status < 300:
                raise KubernetesError(
                    f"{where}: {status}: got no JSON: {answer['message']}", status=status
                ) from error
        if not isinstance(answer, dict):
            raise KubernetesError(f"{where}: the answer is not an object", status=status)
        if status >= 300:
            self.error_count += 1
            raise KubernetesError(
                f"{where}: {status}: {excerpt(answer.get('message', ''), MAX_SAID_CHARS)}",
                status=status,
            )
        return cast(Body, answer)

    async def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, object] | None,
        content_type: str,
    ) -> tuple[int, bytes]:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        _, url, headers, _, _ = await self._client.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params=headers,
            auth_settings=["BearerToken"],
        )
        # The body goes past the client's own rendering, which makes null of every empty value.
        answer = await self._client.call_api(method, url, headers, body, _request_timeout=TIMEOUT_S)
        text: bytes = await answer.read()  # type: ignore[no-untyped-call]  # as it is
        return int(answer.status), text


def is_in_cluster(env: Mapping[str, str]) -> bool:
    """Say whether the pod's service account is to be used: without a KUBECONFIG, in a pod."""
    return "KUBERNETES_SERVICE_HOST" in env and not env.get("KUBECONFIG")


def queues_path(namespace: str) -> str:
    """Return the path of a namespace's PartitionedQueues."""
    return f"/apis/partq.dev/v1alpha1/namespaces/{namespace}/partitionedqueues"


def queue_path(namespace: str, name: str, suffix: str = "") -> str:
    """Return the path of a PartitionedQueue."""
    return f"{queues_path(namespace)}/{name}{suffix}"


def group_path(namespace: str, name: str, suffix: str = "") -> str:
    """Return the path of a ConsumerGroup."""
    return f"/apis/partq.dev/v1alpha1/namespaces/{namespace}/consumergroups/{name}{suffix}"


def pod_path(namespace: str, name: str) -> str:
    """Return the path of a pod."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def secret_path(namespace: str, name: str = "") -> str:
    """Return the path of a Secret, or of those of a namespace."""
    return f"/api/v1/namespaces/{namespace}/secrets" + (f"/{name}" if name else "")
